// Who changed what, newest first, from what to what.

import { html, useEffect, useState } from '../vendor/preact.js'
import { query, read } from './api.js'
import { auditLimit, moment } from './format.js'

const PAGE = 50
const SUBJECT = (event) => event.entity.replace('$RESOURCE:', '').replace('$SYSTEM', 'the system').replace('$NAMESPACE', 'the namespace')
const limitsIn = (state) => ((state && state.limits) || []).map(auditLimit)

function FromTo({ details }) {
  const before = limitsIn(details.from)
  const after = limitsIn(details.to)
  const gone = before.filter((one) => !after.includes(one))
  const come = after.filter((one) => !before.includes(one))
  if (!gone.length && !come.length) return null
  return html`<div class="fromto mono">${gone.map((one) => html`<del key=${one}>${one}</del>`)}
    ${gone.length > 0 && come.length > 0 && html`<span class="soft" aria-hidden="true">→</span>`}
    ${come.map((one) => html`<ins key=${one}>${one}</ins>`)}</div>`
}

export function Audit({ asked }) {
  const [state, setState] = useState({ events: [], cursor: null, loaded: false, problem: '' })
  const entity = asked.get('entity') || ''
  const load = async (cursor) => {
    try {
      const page = await read(query('/v1/audit', { entity, limit: PAGE, cursor }))
      setState((before) => ({ events: [...(cursor ? before.events : []), ...page.events], cursor: page.next_cursor, loaded: true, problem: '' }))
    } catch (error) {
      setState((before) => ({ ...before, problem: error.message }))
    }
  }
  useEffect(() => { load(null) }, [entity])
  const go = (event) => {
    event.preventDefault()
    const subject = new FormData(event.currentTarget).get('entity')
    location.hash = subject ? `#/audit?entity=${encodeURIComponent(subject)}` : '#/audit'
  }
  return html`<main id="main"><section class="card wide" aria-labelledby="audit-title">
    <div class="head"><h1 id="audit-title">Changes</h1><span class="soft small">newest first</span></div>
    <form class="filters" onSubmit=${go} key=${entity}>
      <label class="field">Of one entity, $SYSTEM or $RESOURCE:name<input name="entity" value=${entity} autocomplete="off" /></label><button class="button">Show</button></form>
    ${state.problem && html`<div class="error">${state.problem}</div>`}
    ${state.loaded && !state.events.length && html`<div class="empty"><b>No changes</b>Nothing was changed in 90 days.</div>`}
    <ul class="changes">${state.events.map((event) => html`<li key=${event.id}>
      <time datetime=${event.timestamp}>${moment(event.timestamp)}</time>
      <div><b>${event.principal || 'a program'}</b> <span class="chip">${event.action.replaceAll('_', ' ')}</span> <b>${SUBJECT(event)}</b>${event.resource && event.resource !== '_default_' && !event.entity.startsWith('$') ? html` on <span class="mono">${event.resource}</span>` : ''}
        <${FromTo} details=${event.details} /></div></li>`)}</ul>
    ${state.cursor && html`<div class="foot"><button class="button small" onClick=${() => load(state.cursor)}>Show more</button></div>`}
  </section></main>`
}
