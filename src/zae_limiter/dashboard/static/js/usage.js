// Usage over time, by model or by key, with refusals in a lane of their own.

import { html, useState } from '../vendor/preact.js'
import { query, useLive } from './api.js'
import { compact, count } from './format.js'
import { Columns } from './marks.js'

const COLOURS = ['--series-1', '--series-2', '--series-3', '--series-4', '--series-5', '--series-6', '--series-7', '--series-8', '--series-7']
const CLASSES = ['series-1', 'series-2', 'series-3', 'series-4', 'series-5', 'series-6', 'series-7', 'series-8', 'series-7']
const SPANS = [[24, '24 hours'], [72, '3 days'], [168, '7 days']]
const sum = (values) => values.reduce((total, value) => total + value, 0)

export function Usage({ asked, suggestions, theme }) {
  const by = asked.has('resource') ? 'resource' : 'entity'
  const name = asked.get(by) || (by === 'entity' ? suggestions.entities[0] : suggestions.resources[0]) || ''
  const [hours, setHours] = useState(24)
  const [chosen, setChosen] = useState('')
  const { data, error } = useLive(name ? query('/v1/usage/chart', { [by]: name, hours }) : null, { every: 30000 })
  const limit = data && (data.limits.includes(chosen) ? chosen : data.limits.find((one) => one.includes('tp')) || data.limits[0])
  const series = ((data && data.series) || []).map((one, index) => ({ name: one.name, colour: COLOURS[index], values: (one.values[limit] || []) }))
    .filter((one) => one.values.length && sum(one.values) !== 0)
  const go = (event) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    location.hash = `#/usage?${form.get('by')}=${encodeURIComponent(form.get('name'))}`
  }
  const total = sum(series.map((one) => sum(one.values)))
  return html`<main id="main"><section class="card wide" aria-labelledby="usage-title">
    <div class="head"><h1 id="usage-title">Usage${name && html` of ${name}`}</h1>
      <span class="end choice" role="group" aria-label="How long">${SPANS.map(([span, words]) => html`<button key=${span} aria-pressed=${hours === span ? 'true' : 'false'} onClick=${() => setHours(span)}>${words}</button>`)}</span></div>
    <form class="filters" onSubmit=${go} key=${`${by} ${name}`}>
      <label class="field">Of<select name="by"><option value="entity" selected=${by === 'entity'}>a key, by model</option><option value="resource" selected=${by === 'resource'}>a model, by key</option></select></label>
      <label class="field">Name<input name="name" value=${name} list="usage-names" autocomplete="off" required /></label>
      <datalist id="usage-names">${[...suggestions.entities, ...suggestions.resources].map((one) => html`<option key=${one} value=${one}></option>`)}</datalist>
      ${data && data.limits.length > 0 && html`<label class="field">Limit<select value=${limit} onChange=${(event) => setChosen(event.target.value)}>${data.limits.map((one) => html`<option key=${one} value=${one} selected=${one === limit}>${one}</option>`)}</select></label>`}
      <button class="button">Show</button>
    </form>
    ${error && html`<div class="error">${error.message}</div>`}
    ${data && (series.length
      ? html`<${Columns} times=${data.hours} theme=${theme} height=${260} format=${compact} series=${series}
          label=${`${limit} per hour: ${series.map((one) => `${one.name} ${count(sum(one.values))}`).join(', ')}`} />`
      : html`<div class="empty"><b>Nothing was taken</b>in these hours${limit ? ` of ${limit}` : ''}.</div>`)}
    ${data && html`<div class="legend">${series.map((one, index) => html`<span key=${one.name}><i class=${`key ${CLASSES[index]}`}></i>${one.name} <b>${compact(sum(one.values))}</b></span>`)}
      ${total > 0 && html`<span>in all <b>${count(total)} ${limit}</b></span>`}</div>`}
    ${data && html`<div class="head"><h2>Refused</h2><span class="soft small">by limits of ${by === 'entity' ? 'its own' : 'keys'}, calls per hour, ${count(sum(data.refused))} in all</span></div>
      <${Columns} times=${data.hours} theme=${theme} height=${90} format=${compact} series=${[{ colour: '--bad-fill', values: data.refused }]}
        label=${`Refused calls per hour, ${count(sum(data.refused))} in all`} />`}
    ${data && data.cut && html`<div class="foot">There is more than is drawn here: name a key to see all of it.</div>`}
  </section></main>`
}
