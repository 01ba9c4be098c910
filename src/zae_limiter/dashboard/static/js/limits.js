// The limits of all levels, the widest first.

import { html } from '../vendor/preact.js'
import { useLive } from './api.js'
import { levelWords } from './change.js'

const LEVELS = (level) => (level.entity ? (level.resource ? 'entity and resource' : 'entity') : level.resource ? 'resource' : 'system')

export function Limits({ find, change, may, version }) {
  const { data, error } = useLive('/v1/limits/all', { every: 10000, version })
  const levels = ((data && data.levels) || []).filter((level) => `${level.entity || ''} ${level.resource || ''}`.toLowerCase().includes(find.toLowerCase()))
  return html`<main id="main"><section class="card wide" aria-labelledby="limits-title">
    <div class="head"><h1 id="limits-title">Limits</h1><span class="soft small">the narrowest level that has limits gives all of them</span></div>
    ${error && html`<div class="error">${error.message}</div>`}
    ${data && html`<div class="scroll"><table><thead><tr><th scope="col">Level</th><th scope="col">Whose</th><th scope="col">Limits</th><th scope="col"><span class="hidden-text">Actions</span></th></tr></thead>
      <tbody>${levels.map((level) => html`<tr key=${`${level.entity} ${level.resource}`}>
        <td><span class="chip">${LEVELS(level)}</span></td><td>${levelWords(level)}</td>
        <td>${level.limits.length ? level.limits.map((word) => html`<span class="chip word" key=${word}>${word || 'a limit that no word can say'}</span> `) : html`<span class="soft">none</span>`}</td>
        <td class="number"><button class="button small" disabled=${!may.write} onClick=${() => change([level])}>Change…</button></td>
      </tr>`)}</tbody></table></div>`}
    ${data && data.more && html`<div class="foot">There are more levels than are listed here: <code>zae-limiter list</code> shows all.</div>`}
  </section></main>`
}
