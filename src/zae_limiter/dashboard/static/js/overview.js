// The first view: how things are in a sentence, and what needs attention, worst first.

import { html, useEffect, useMemo, useState } from '../vendor/preact.js'
import { ask } from './api.js'
import { compact, count, duration, levelOf, limitWords, percent, plural, sourceWords } from './format.js'
import { Legs, lastCallWords } from './legs.js'
import { Bar, Columns, Spark } from './marks.js'

const KINDS = [['all', 'All'], ['refused', 'Refused'], ['near', 'Near'], ['debt', 'Debt']]
const SERIES = ['--series-1', '--series-4', '--series-3', '--series-2', '--series-5', '--series-6', '--series-7', '--series-8']
const CLASSES = ['series-1', 'series-4', 'series-3', 'series-2', 'series-5', 'series-6', 'series-7', 'series-8']
const last = (values) => values[values.length - 1] || 0
const sum = (values) => values.reduce((total, value) => total + value, 0)

// The minute that has begun says little: the one before it, unless it is quiet and this one is not.
const perMinute = (values) => Math.max(values[values.length - 2] || 0, last(values))

export const rowKey = (row) => `${row.entity} ${row.resource}`

function storeWords({ store }) {
  if (!store.calls) return ''
  if (store.p50_ms === null) return 'the store is slow.'
  return store.p50_ms <= 1 ? 'the store answers within 1 ms.' : `the store answers within ${store.p50_ms} ms.`
}

function Sentence({ view }) {
  const { refused, near, debt } = view.counts
  if (!view.processes && !view.rows.length) {
    return html`<h1>No process tells how it does yet. <span class="rest">Open a limiter with pulse=True, or serve.</span></h1>`
  }
  const calls = perMinute(view.minutes.granted)
  if (!refused && !near && !debt) {
    return html`<h1>All is well: <span class="rest">${plural(calls, 'call', 'calls')} a minute, none refused lately; ${storeWords(view)}</span></h1>`
  }
  const parts = []
  if (refused) parts.push(html`<span class="bad">${plural(refused, 'key is', 'keys are')} being refused</span>`)
  if (debt) parts.push(html`<span>${count(debt)} ${parts.length ? '' : debt === 1 ? 'key ' : 'keys '}${debt === 1 ? 'is' : 'are'} in debt</span>`)
  if (near) parts.push(html`<span class="warn">${count(near)} ${parts.length ? '' : near === 1 ? 'key ' : 'keys '}${near === 1 ? 'is' : 'are'} near a limit</span>`)
  const said = parts.flatMap((part, index) => (index ? [', ', part] : [part]))
  return html`<h1>${said}. <span class="rest">Every limit holds; ${storeWords(view)}</span></h1>`
}

function Tiles({ view, show }) {
  const refusedMinutes = view.minutes.granted.map((_, index) => sum(view.minutes.refused.map((one) => one.minutes[index])))
  const granted = view.minutes.granted
  const refused = perMinute(refusedMinutes)
  const calls = perMinute(granted.map((value, index) => value + refusedMinutes[index]))
  const worst = view.rows.filter((row) => row.binding && row.binding.available < 0)
    .sort((one, other) => other.binding.used_permille - one.binding.used_permille)[0]
  const { store } = view
  return html`<div class="wide tiles">
    <button class=${`tile ${refused ? 'bad' : ''}`} onClick=${() => show('refused')}>
      <span class="name">Refused</span><span class="value">${count(refused)}<small>/min</small></span>
      <${Spark} values=${refusedMinutes.slice(-30)} />
      <span class="note">${calls ? `${percent(refused / calls)} of ${count(calls)} calls a minute` : 'no calls yet'}</span>
    </button>
    <div class="tile">
      <span class="name">Granted</span><span class="value">${compact(perMinute(granted))}<small>/min</small></span>
      <${Spark} values=${granted.slice(-30)} colour="var(--accent)" />
      <span class="note">by ${plural(view.processes, 'process', 'processes')} with a pulse</span>
    </div>
    <button class=${`tile ${view.counts.near ? 'warn' : ''}`} onClick=${() => show(view.counts.debt && !view.counts.near ? 'debt' : 'near')}>
      <span class="name">Near a limit</span><span class="value">${count(view.counts.near)}</span>
      <span class="note">${view.counts.debt ? `${count(view.counts.debt)} in debt${worst ? `, worst ${count(worst.binding.available)} ${worst.binding.name}` : ''}` : 'above 80 % used, none in debt'}</span>
    </button>
    <div class="tile">
      <span class="name">Store</span>
      <span class="value">${!store.calls ? '–' : store.p50_ms === null ? '> 1' : store.p50_ms <= 1 ? '< 1' : count(store.p50_ms)}<small> ${store.calls && store.p50_ms === null ? 's' : 'ms'}</small></span>
      <span class="note">${store.calls ? `99 % within ${store.p99_ms === null ? 'more than 1,000' : count(store.p99_ms)} ms · ${plural(store.errors, 'error', 'errors')}` : 'no calls in five minutes'}</span>
    </div>
  </div>`
}

function Row({ row, open, unfold, may, change, tell }) {
  const limit = row.binding
  const level = limit && levelOf(limit)
  const reset = async () => {
    try {
      await ask('POST', '/v1/reset', { entity: row.entity, resource: row.resource })
      tell(`${row.entity} on ${row.resource} is full again.`)
    } catch (error) {
      tell(error.message)
    }
  }
  const copy = async () => {
    const link = `${location.origin}/#/?open=${encodeURIComponent(rowKey(row))}`
    try {
      await navigator.clipboard.writeText(link)
      tell('The link is copied.')
    } catch {
      tell(link)
    }
  }
  const blocked = row.access === 'block'
  const fits = blocked ? 'blocked' : row.fits ? 'now' : `${limit && limit.at_latest ? 'within ' : ''}${duration(row.wait_seconds)}`
  const parts = [html`<tr key=${rowKey(row)} class=${`row ${open ? 'open' : ''}`} onClick=${(event) => event.target.closest('button, a') || unfold()}>
    <td>
      <button class="who" aria-expanded=${open ? 'true' : 'false'} onClick=${unfold}><span class="fold" aria-hidden="true">▸</span>${row.entity}</button>${row.access && html` <span class=${`chip ${blocked ? 'bad' : 'info'}`}>${blocked ? 'blocked' : 'only observed'}</span>`}
      <span class="under path">${row.path.length ? [...row.path].reverse().join(' › ') : html`<span aria-label="no parent">–</span>`}</span>
    </td>
    <td class="resource"><span class="mono">${row.resource}</span></td>
    <td>${limit && html`<span class="mono">${limitWords(limit)}</span><span class="under">${limit.entity === row.entity ? sourceWords(limit.source) : `of ${limit.entity}`}</span>`}</td>
    <td class="in-use">${limit && html`<div class="level"><${Bar} limit=${limit} label=${`${limit.name}, ${row.entity} on ${row.resource}`} /><b class=${level.kind ? `${level.kind}-text` : ''}>${level.text}</b></div>`}</td>
    <td class="number refusals">${row.refused_per_minute ? html`<${Spark} values=${row.refused} width=${46} height=${18} /> <b>${count(row.refused_per_minute)}</b>` : html`<span class="soft">–</span>`}</td>
    <td class="number fits">${row.fits ? html`<span class="soft">${fits}</span>` : fits}</td>
  </tr>`]
  if (open) {
    parts.push(html`<tr class="why" key=${`${rowKey(row)} why`}><td colspan="6">
      <${Legs} row=${row} />
      <div class="actions">
        <span class="soft">${lastCallWords(row)}</span><span class="grow"></span>
        <button class="button small" disabled=${!may.write} onClick=${() => change(row)}>Change limit…</button>
        <button class="button small" disabled=${!may.write} onClick=${reset}>Reset</button>
        <a class="button small" href=${`#/usage?entity=${encodeURIComponent(row.entity)}`}>Usage</a>
        <button class="button small" onClick=${copy}>Copy link</button>
      </div>
    </td></tr>`)
  }
  return parts
}

function Attention({ view, find, kind, setKind, open, setOpen, may, change, tell }) {
  const matching = view.rows.filter((row) => {
    const text = `${row.entity} ${row.path.join(' ')} ${row.resource}`.toLowerCase()
    return (kind === 'all' || row.kinds.includes(kind)) && text.includes(find.toLowerCase())
  })
  const number = (name) => (name === 'all' ? view.rows.length : view.counts[name])
  const move = (event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key]
    if (!step || event.target.closest('input')) return
    const buttons = [...event.currentTarget.querySelectorAll('.who')]
    const next = buttons[buttons.indexOf(document.activeElement) + step]
    if (next) {
      event.preventDefault()
      next.focus()
    }
  }
  return html`<section class="card" id="attention" aria-labelledby="attention-title" onKeyDown=${move}>
    <div class="head">
      <h2 id="attention-title">Needs attention</h2><span class="soft small">worst first</span>
      <span class="end choice" role="group" aria-label="Show">
        ${KINDS.map(([name, words]) => html`<button key=${name} aria-pressed=${kind === name ? 'true' : 'false'} onClick=${() => setKind(name)}>${words} ${count(number(name))}</button>`)}
      </span>
    </div>
    ${matching.length === 0
      ? html`<div class="empty"><b>${view.rows.length ? 'Nothing matches' : 'Nothing needs attention'}</b>
          ${find ? html`<a href=${`#/usage?entity=${encodeURIComponent(find)}`}>Show the usage of ${find}</a>` : 'No key is refused, near a limit or in debt.'}</div>`
      : html`<table class="rows"><thead><tr>
          <th scope="col">Who</th><th scope="col">Resource</th><th scope="col">Limit that binds</th><th scope="col">In use</th>
          <th scope="col" class="number">Refused/min</th><th scope="col" class="number">Fits again</th></tr></thead>
        <tbody>${matching.map((row) => html`<${Row} key=${rowKey(row)} row=${row} open=${open === rowKey(row)} may=${may} change=${change} tell=${tell}
          unfold=${() => setOpen(open === rowKey(row) ? null : rowKey(row))} />`)}</tbody></table>`}
    ${view.more > 0 && html`<div class="foot">${count(view.more)} more, less urgent, are not shown.</div>`}
  </section>`
}

function RefusedByLimit({ view, theme }) {
  const { until, refused } = view.minutes
  const end = Date.parse(until) / 1000
  const length = view.minutes.granted.length
  const shown = refused.map((one) => ({ ...one, total: sum(one.minutes) })).filter((one) => one.total)
    .sort((one, other) => other.total - one.total).slice(0, SERIES.length)
  const times = useMemo(() => Array.from({ length }, (_, index) => end - (length - 1 - index) * 60), [until])
  const words = (one) => (one.level ? `${one.limit}, ${one.level === 'own' ? 'its own' : 'of an ancestor'}` : one.limit)
  const total = sum(shown.map((one) => one.total))
  return html`<section class="card" aria-labelledby="refused-title">
    <div class="head"><h2 id="refused-title">Refused, by limit</h2><span class="soft small end">last hour, per minute</span></div>
    ${total === 0
      ? html`<div class="empty">None in the last hour.</div>`
      : html`<${Columns} times=${times} theme=${theme} height=${132} format=${compact}
            label=${`Refusals per minute over the last hour: ${shown.map((one) => `${count(one.total)} by ${words(one)}`).join(', ')}`}
            series=${shown.map((one, index) => ({ colour: SERIES[index], values: one.minutes }))} />
          <div class="legend">${shown.map((one, index) => html`<span key=${words(one)}><i class=${`key ${CLASSES[index]}`}></i>${words(one)} <b>${count(one.total)}</b></span>`)}</div>`}
  </section>`
}

function Noisiest({ view }) {
  if (!view.noisiest.length) return null
  const most = view.noisiest[0].share
  return html`<section class="card" aria-labelledby="noisy-title">
    <div class="head"><h2 id="noisy-title">Noisiest keys</h2><span class="soft small end">share of calls · refused of them</span></div>
    <ul class="list">${view.noisiest.map((one) => html`<li key=${one.entity}>
      <a href=${`#/usage?entity=${encodeURIComponent(one.entity)}`}>${one.entity}</a>
      <span>${percent(one.share)} <span class=${one.refused_share >= 0.2 ? 'bad-text' : 'soft'}>· ${percent(one.refused_share)}</span></span>
      <span class="share"><i class=${one.refused_share >= 0.2 ? 'bad' : one.refused_share > 0 ? 'warn' : ''} style=${{ width: `${(one.share / most) * 100}%` }}></i></span>
    </li>`)}</ul>
  </section>`
}

function Providers({ view }) {
  if (!view.providers.length) return null
  return html`<section class="card" aria-labelledby="providers-title">
    <div class="head"><h2 id="providers-title">Paused by providers</h2></div>
    <ul class="list">${view.providers.map((one) => html`<li key=${`${one.entity} ${one.resource}`}>
      <span>${one.entity} · <span class="mono">${one.resource}</span></span><span class="chip bad">for ${duration(one.paused_seconds)}</span></li>`)}</ul>
  </section>`
}

export function Overview({ view, find, may, change, tell, theme, asked }) {
  const [kind, setKind] = useState('all')
  const [open, setOpen] = useState(asked.get('open'))
  useEffect(() => { if (asked.get('open')) setOpen(asked.get('open')) }, [asked.get('open')])
  return html`<main class="two" id="main">
    <div class="wide" aria-live="polite"><${Sentence} view=${view} /></div>
    <${Tiles} view=${view} show=${setKind} />
    <${Attention} view=${view} find=${find} kind=${kind} setKind=${setKind} open=${open} setOpen=${setOpen} may=${may} change=${change} tell=${tell} />
    <div class="side"><${RefusedByLimit} view=${view} theme=${theme} /><${Providers} view=${view} /><${Noisiest} view=${view} /></div>
  </main>`
}
