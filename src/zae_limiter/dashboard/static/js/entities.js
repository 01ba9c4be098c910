// The hierarchy, live: who belongs to whom, and how full the tightest limits of each are.

import { html, useEffect, useState } from '../vendor/preact.js'
import { query, read, useLive } from './api.js'
import { count, levelOf } from './format.js'
import { Bar } from './marks.js'

const PAGE = 100
const MOST_LIVE = 50
const BARS = 2

function tightest(levels) {
  return [...levels].sort((one, other) => other.used_permille - one.used_permille).slice(0, BARS)
}

function Levels({ entity, levels }) {
  if (!levels) return html`<span class="soft">…</span>`
  if (!levels.length) return html`<span class="soft">not used lately</span>`
  return tightest(levels).map((level) => {
    const { kind, text } = levelOf({ ...level, refuses: false })
    return html`<div class="level" key=${`${level.resource} ${level.name}`}>
      <div><${Bar} limit=${level} label=${`${level.name} of ${entity} on ${level.resource}`} />
        <span class="under">${level.name} on ${level.resource}</span></div>
      <b class=${kind ? `${kind}-text` : ''}>${text}</b></div>`
  })
}

export function Entities({ find, change, may }) {
  const [roots, setRoots] = useState({ items: [], cursor: null, loaded: false })
  const [open, setOpen] = useState({})
  const [problem, setProblem] = useState('')
  const load = async (cursor) => {
    try {
      const page = await read(query('/v1/entities', { limit: PAGE, cursor }))
      setRoots((before) => ({ items: [...(cursor ? before.items : []), ...page.entities], cursor: page.next_cursor, loaded: true }))
    } catch (error) {
      setProblem(error.message)
    }
  }
  useEffect(() => { load(null) }, [])
  const unfold = async (id) => {
    if (open[id]) {
      const { [id]: gone, ...rest } = open
      setOpen(rest)
      return
    }
    const page = await read(query('/v1/entities', { parent: id, limit: PAGE }))
    setOpen((before) => ({ ...before, [id]: page }))
  }
  const known = new Set(roots.items.map((entity) => entity.id))
  const rows = []
  const walk = (entity, depth) => {
    if (!find || entity.id.toLowerCase().includes(find.toLowerCase())) rows.push({ entity, depth })
    const page = open[entity.id]
    if (page) {
      page.entities.forEach((child) => walk(child, depth + 1))
      if (page.next_cursor) rows.push({ more: `${count(PAGE)} shown of those below ${entity.id}`, depth: depth + 1 })
    }
  }
  roots.items.filter((entity) => find || !entity.parent || !known.has(entity.parent)).forEach((entity) => walk(entity, 0))
  const seen = new Set()
  const shown = rows.filter((row) => row.more || (!seen.has(row.entity.id) && seen.add(row.entity.id)))
  const asked = shown.filter((row) => row.entity).slice(0, MOST_LIVE).map((row) => row.entity.id)
  const levels = useLive(asked.length ? '/v1/levels' : null, { body: { entities: asked } })
  const found = (levels.data && levels.data.levels) || {}
  return html`<main id="main"><section class="card wide" aria-labelledby="entities-title">
    <div class="head"><h1 id="entities-title">Entities</h1><span class="soft small">tightest limits, live</span></div>
    ${problem && html`<div class="error">${problem}</div>`}
    ${roots.loaded && !shown.length && html`<div class="empty"><b>No entities${find ? ` with ${find} in their id` : ' were created'}</b>Keys need not be created; the overview shows those that call.</div>`}
    ${shown.length > 0 && html`<div class="scroll"><table><thead><tr><th scope="col">Entity</th><th scope="col">Name</th><th scope="col">In use</th><th scope="col"><span class="hidden-text">Actions</span></th></tr></thead>
      <tbody>${shown.map((row, index) => row.more
        ? html`<tr key=${`more ${index}`}><td colspan="4" class="soft">${row.more}</td></tr>`
        : html`<tr key=${row.entity.id}>
          <td><span class="indent" style=${{ paddingLeft: `${row.depth * 22}px` }}>
            <button class="who" aria-expanded=${open[row.entity.id] ? 'true' : 'false'} onClick=${() => unfold(row.entity.id)}><span class="fold" aria-hidden="true">▸</span>${row.entity.id}</button></span>
            ${open[row.entity.id] && !open[row.entity.id].entities.length && html`<span class="under" style=${{ paddingLeft: `${row.depth * 22 + 17}px` }}>none below</span>`}</td>
          <td>${row.entity.name || html`<span class="soft">–</span>`}${row.entity.cascade && html` <span class="chip">cascades</span>`}</td>
          <td><${Levels} entity=${row.entity.id} levels=${found[row.entity.id]} /></td>
          <td class="number"><a class="button small" href=${`#/usage?entity=${encodeURIComponent(row.entity.id)}`}>Usage</a>
            <button class="button small" disabled=${!may.write} onClick=${() => change([{ entity: row.entity.id, resource: null }])}>Limits…</button></td>
        </tr>`)}</tbody></table></div>`}
    ${roots.cursor && html`<div class="foot"><button class="button small" onClick=${() => load(roots.cursor)}>Show more</button></div>`}
  </section></main>`
}
