// Numbers, times and limits in words.

const whole = new Intl.NumberFormat('en-US')
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 })

export const count = (value) => whole.format(value).replace('-', '−')
export const compact = (value) => short.format(value).replace('-', '−')
export const percent = (part) => `${Math.round(part * 100)} %`
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return 'never'
  if (seconds <= 0) return 'now'
  if (seconds < 10) return `${Math.max(0.1, Math.round(seconds * 10) / 10)} s`
  if (seconds < 100) return `${Math.round(seconds)} s`
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86400)} d`
}

const PERIODS = { sec: 'second', min: 'min', hour: 'hour', day: 'day', week: 'week', month: 'month' }

export function limitWords(limit) {
  if (limit.in_flight) return `${limit.name} ${count(limit.burst)} in flight`
  const amount = `${limit.name} ${count(limit.amount)}/${PERIODS[limit.period] || limit.period}`
  return limit.burst === limit.amount ? amount : `${amount}, burst ${count(limit.burst)}`
}

const SOURCES = {
  entity: 'own limit for this resource',
  entity_default: 'own limit for every resource',
  total: 'own limit over all resources',
  resource: 'resource default',
  system: 'system default',
}

export const sourceWords = (source) => SOURCES[source] || 'given with the call'

// How a limit does: its kind for colours, and its level in words.
export function levelOf(limit) {
  const used = limit.used_permille
  if (limit.available < 0) return { kind: 'bad', text: count(limit.available), used }
  if (limit.refuses && limit.wait_seconds === null) return { kind: 'bad', text: 'too large', used }
  if (limit.refuses || used >= 1000) return { kind: 'bad', text: percent(used / 1000), used }
  return { kind: used >= 800 ? 'warn' : '', text: percent(used / 1000), used }
}

export function moment(iso, now = new Date()) {
  const when = new Date(iso)
  const time = when.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })
  if (when.toDateString() === now.toDateString()) return time
  const day = when.toLocaleDateString('en-US', { month: 'short', day: 'numeric' })
  return when.getFullYear() === now.getFullYear() ? `${day}, ${time}` : `${day} ${when.getFullYear()}`
}

// A limit as the audit trail has it, in the words of the command line.
export function auditLimit(limit) {
  const seconds = limit.refill_period_seconds
  const units = [[604800, 'week'], [86400, 'day'], [3600, 'hour'], [60, 'min'], [1, 'sec']]
  if (limit.hold_seconds) return `${limit.name} ${count(limit.burst ?? limit.capacity)} in flight`
  const [length, unit] = units.find(([size]) => seconds && seconds % size === 0) || [1, 'sec']
  const period = limit.calendar ? limit.calendar.unit : seconds === length ? unit : `${seconds / length} ${unit}`
  return `${limit.name} ${count(limit.refill_amount ?? limit.capacity)}/${period}`
}
