// What a row unfolds to: every leg of a call, what each has and lacks, and by whom its limits were set.

import { html, useEffect, useState } from '../vendor/preact.js'
import { query, read } from './api.js'
import { count, duration, levelOf, limitWords, moment, sourceWords } from './format.js'
import { Bar } from './marks.js'

const SUBJECTS = { resource: (leg) => `$RESOURCE:${leg.resource}`, system: () => '$SYSTEM' }

// The last change of the limits of a leg, from the audit trail of the level that they come from.
function useLastChange(leg) {
  const source = leg.limits[0] && leg.limits[0].source
  const subject = (SUBJECTS[source] || ((one) => one.entity))(leg)
  const [found, setFound] = useState(null)
  useEffect(() => {
    let ours = true
    read(query('/v1/audit', { entity: subject, limit: 20 }))
      .then(({ events }) => {
        const change = events.find((event) => event.action.startsWith('limits') || event.action.includes('defaults'))
        if (ours) setFound(change || null)
      })
      .catch(() => {})
    return () => { ours = false }
  }, [subject])
  return found
}

function LimitOfLeg({ leg, limit }) {
  const { kind } = levelOf(limit)
  const until = limit.resets_at ? `, resets ${moment(limit.resets_at)}` : ''
  const held = limit.in_flight ? `${count(limit.burst - limit.available)} calls in flight` : null
  return html`<div class="limit">
    <span class="mono">${limitWords(limit)}</span>
    <span class=${`mono ${kind ? `${kind}-text` : ''}`}>${limit.available < 0 ? `owes ${count(-limit.available)}` : `${count(limit.available)} left`}</span>
    <${Bar} limit=${limit} label=${`${limit.name} of ${leg.entity}`} />
    <span class="under">${held || sourceWords(limit.source)}${until}${limit.enforced ? '' : ', only watches'}</span>
  </div>`
}

function Leg({ leg, own }) {
  const lacking = leg.limits.filter((limit) => limit.lacks > 0 && limit.refuses)
  const worst = leg.limits.reduce((most, limit) => (limit.used_permille > most.used_permille ? limit : most), leg.limits[0])
  const change = useLastChange(leg)
  let chip = html`<span class="chip">has enough</span>`
  if (lacking.length) {
    chip = lacking.map((limit) => html`<span class="chip bad">lacks ${count(limit.lacks)} ${limit.name}</span>`)
  } else if (worst && worst.used_permille >= 800) {
    chip = html`<span class="chip warn">${levelOf(worst).text} of ${worst.name}</span>`
  }
  return html`<div class=${`leg ${lacking.length ? 'lacks' : ''}`}>
    <div class="title">${leg.entity}${leg.resource === '*' ? ' in all' : ''} ${chip}</div>
    ${leg.limits.map((limit) => html`<${LimitOfLeg} key=${limit.name} leg=${leg} limit=${limit} />`)}
    ${change && html`<span class="under">set ${change.principal ? `by ${change.principal} ` : ''}${moment(change.timestamp)}</span>`}
    ${!own && html`<span class="hidden-text">an ancestor of the caller</span>`}
  </div>`
}

export function Legs({ row }) {
  const parts = []
  row.legs.forEach((leg, index) => {
    if (index) parts.push(html`<span class="arrow" key=${`to-${index}`} aria-hidden="true">→</span>`)
    parts.push(html`<${Leg} key=${`${leg.entity} ${leg.resource}`} leg=${leg} own=${index === 0} />`)
  })
  return html`<div class="legs">${parts}</div>`
}

export function lastCallWords(row) {
  const asked = Object.entries(row.requested).filter(([, amount]) => amount)
  if (!asked.length) return ''
  const amounts = asked.map(([name, amount]) => `${count(amount)} ${name}`).join(', ')
  if (row.access === 'block') return 'An access switch blocks it, whatever its limits have.'
  if (row.fits) return `The last call asked for ${amounts}; it would fit now.`
  if (row.wait_seconds === null) return `The last call asked for ${amounts}, which never fits.`
  return `The last call asked for ${amounts}; that fits in ${duration(row.wait_seconds)}.`
}
