// Changing the limits of a level: a preview of what it does first, and a way back afterwards.

import { html, useEffect, useRef, useState } from '../vendor/preact.js'
import { ask, query, read } from './api.js'
import { count, duration, levelOf, limitWords } from './format.js'

const PAUSE_MS = 250

export const levelWords = ({ entity, resource }) => {
  if (entity) return resource ? `${entity} on ${resource}` : `${entity} on every resource`
  return resource ? `${resource}, for all without limits of their own` : 'the system, for all without limits of their own'
}

const pathOf = ({ entity, resource }) => query('/v1/limits', { entity, resource })
const given = (limit) => (typeof limit === 'string' ? limit : limit.word || limit)

// The levels that a row can be changed at: of its caller, and of the leg that binds.
export function levelsOf(row) {
  const levels = [{ entity: row.entity, resource: row.resource }, { entity: row.entity, resource: null }]
  const binding = row.binding
  if (binding && binding.entity !== row.entity) {
    levels.push({ entity: binding.entity, resource: row.resource }, { entity: binding.entity, resource: null })
  }
  return [...levels, { entity: null, resource: row.resource }, { entity: null, resource: null }]
}

// Which of them gives the limit that binds.
export function levelThatBinds(row) {
  const { binding } = row
  if (!binding) return 0
  const levels = levelsOf(row)
  const wanted = {
    entity: { entity: binding.entity, resource: row.resource },
    entity_default: { entity: binding.entity, resource: null },
    resource: { entity: null, resource: row.resource },
    system: { entity: null, resource: null },
  }[binding.source]
  const found = levels.findIndex((level) => wanted && level.entity === wanted.entity && level.resource === wanted.resource)
  return Math.max(found, 0)
}

export function scaled(word, factor) {
  return word.replace(/^([^:]+:)([\d_.]+)([kMG]?)/, (_, name, number, letter) => {
    const size = { '': 1, k: 1e3, M: 1e6, G: 1e9 }[letter]
    return `${name}${Math.max(1, Math.round(Number(number.replaceAll('_', '')) * size * factor))}`
  }).replace(/:(\d+)(\/[^:]*):(\d+)/, (_, amount, period, burst) => `:${amount}${period}:${Math.max(1, Math.round(Number(burst) * factor))}`)
}

function Effect({ title, look }) {
  if (!look) return html`<div><b>${title}</b><span class="under">The last call names limits that would not be there.</span></div>`
  const binding = look.binding
  const level = binding && levelOf(binding)
  return html`<div>
    <b>${title}: ${look.fits ? 'the last call fits' : look.wait_seconds === null ? 'the last call never fits' : `fits in ${duration(look.wait_seconds)}`}</b>
    ${binding && html`<span class="under">${look.fits ? 'next to bind' : 'bound by'}: <span class="mono">${limitWords(binding)}</span>${' '}
      of ${binding.entity}, <span class=${level.kind ? `${level.kind}-text` : ''}>${binding.available < 0 ? `${level.text}, in debt` : `${level.text} used`}</span></span>`}
  </div>`
}

function Lines({ lines }) {
  const marks = { added: '+', removed: '−', changed: '~', same: ' ' }
  return html`<div class="diff" role="group" aria-label="What changes">
    ${lines.map((line) => html`<div key=${line.name} class=${line.mark}>${marks[line.mark]} ${line.mark === 'changed' ? `${line.from}  →  ${line.to}` : line.to || line.from}</div>`)}
  </div>`
}

export function ChangeDialog({ levels, start = 0, row, close, done }) {
  const box = useRef(null)
  const [chosen, setChosen] = useState(start)
  const [before, setBefore] = useState(null)
  const [words, setWords] = useState([])
  const [preview, setPreview] = useState(null)
  const [problem, setProblem] = useState('')
  const level = levels[chosen]

  useEffect(() => { box.current.showModal() }, [])
  useEffect(() => {
    let ours = true
    setPreview(null)
    const load = async () => {
      const { data, etag } = await ask('GET', pathOf(level))
      let limits = data.limits.map(given)
      if (!limits.length && row) { // what holds now is what a new level begins with
        const leg = row.legs.find((one) => one.entity === (level.entity || row.entity)) || row.legs[0]
        limits = leg.limits.filter((limit) => limit.word).map((limit) => limit.word)
      }
      if (!ours) return
      setBefore({ limits: data.limits.map(given), etag })
      setWords(limits.filter((word) => typeof word === 'string'))
    }
    load().catch((error) => ours && setProblem(error.message))
    return () => { ours = false }
  }, [chosen])

  const text = words.map((word) => word.trim()).filter(Boolean)
  useEffect(() => {
    if (!before) return undefined
    const look = async () => {
      const body = { limits: text }
      if (level.entity) body.entity = level.entity
      if (level.resource) body.resource = level.resource
      if (row) Object.assign(body, { seen_by: { entity: row.entity, resource: row.resource }, requested: row.requested })
      try {
        setPreview(await read('/v1/limits/preview', body))
        setProblem('')
      } catch (error) {
        setPreview(null)
        setProblem(error.message)
      }
    }
    const timer = setTimeout(look, PAUSE_MS)
    return () => clearTimeout(timer)
  }, [before, text.join(' ')])

  const whole = before && before.limits.every((limit) => typeof limit === 'string')
  const differs = preview && preview.lines.some((line) => line.mark !== 'same')
  const apply = async (event) => {
    event.preventDefault()
    try {
      const changed = text.length
        ? await ask('PUT', pathOf(level), { limits: text }, before.limits.length ? before.etag : undefined)
        : await ask('DELETE', pathOf(level), undefined, before.etag)
      const undo = () =>
        before.limits.length
          ? ask('PUT', pathOf(level), { limits: before.limits }, changed.etag || undefined)
          : ask('DELETE', pathOf(level), undefined, changed.etag || undefined)
      done(`The limits of ${levelWords(level)} are changed.`, undo)
    } catch (error) {
      setProblem(error.status === 412 ? 'Another operator has changed these limits meanwhile. Close, and look again.' : error.message)
    }
  }
  const edit = (index, word) => setWords(words.map((one, place) => (place === index ? word : one)))

  return html`<dialog ref=${box} aria-labelledby="change-title" onClose=${close}>
    <form method="dialog" onSubmit=${apply}>
      <div class="head"><h2 id="change-title">Change limits</h2><span class="grow"></span>
        <button type="button" class="button icon" aria-label="Close" onClick=${() => box.current.close()}>✕</button></div>
      <div class="body">
        <label class="field">Whose limits
          <select value=${chosen} onChange=${(event) => setChosen(Number(event.target.value))}>
            ${levels.map((one, index) => html`<option key=${index} value=${index} selected=${index === chosen}>${levelWords(one)}</option>`)}
          </select></label>
        ${words.map((word, index) => html`<div class="edit" key=${index}>
          <input aria-label=${`Limit ${index + 1}`} value=${word} spellcheck="false" autocomplete="off" onInput=${(event) => edit(index, event.target.value)} />
          <span class="choice" role="group" aria-label=${`Scale limit ${index + 1}`}>
            <button type="button" onClick=${() => edit(index, scaled(word, 0.5))}>÷ 2</button>
            <button type="button" onClick=${() => edit(index, scaled(word, 1.5))}>+ 50 %</button>
            <button type="button" onClick=${() => edit(index, scaled(word, 2))}>× 2</button>
            <button type="button" aria-label=${`Remove limit ${index + 1}`} onClick=${() => setWords(words.filter((_, place) => place !== index))}>✕</button>
          </span></div>`)}
        <div><button type="button" class="button small" onClick=${() => setWords([...words, 'rpm:100/min'])}>Add a limit</button>
          <span class="soft small">  like tpm:10k/min:15k, usd:500/month@UTC or calls:20/inflight</span></div>
        ${preview && html`<${Lines} lines=${preview.lines} />`}
        ${preview && preview.effect && html`<div class="soft">${preview.effect}</div>`}
        ${preview && preview.now && preview.then && html`<div class="effect"><${Effect} title="Now" look=${preview.now} /><${Effect} title="Then" look=${preview.then} /></div>`}
        <div role="status">${problem && html`<div class="error">${problem}</div>`}</div>
        ${before && !whole && html`<div class="soft">This level has limits that no word can say; change it with a manifest.</div>`}
      </div>
      <div class="foot">
        <span class="soft small">${before && !before.limits.length ? 'This level has no limits yet: wider ones hold.' : `${count(text.length)} limits`}</span><span class="grow"></span>
        <button type="button" class="button" onClick=${() => box.current.close()}>Cancel</button>
        <button class="button main" disabled=${!differs || !whole || Boolean(problem)}>${text.length ? 'Apply' : 'Remove the limits'}</button>
      </div>
    </form>
  </dialog>`
}
