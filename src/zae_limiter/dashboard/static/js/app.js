// The page: which view is shown, as whom, light or dark.

import { html, render, useEffect, useRef, useState } from '../vendor/preact.js'
import { begin, read, useLive, keepToken } from './api.js'
import { Audit } from './audit.js'
import { ChangeDialog, levelThatBinds, levelsOf } from './change.js'
import { Entities } from './entities.js'
import { Limits } from './limits.js'
import { Overview } from './overview.js'
import { Usage } from './usage.js'

const VIEWS = [['', 'Overview'], ['entities', 'Entities'], ['limits', 'Limits'], ['usage', 'Usage'], ['audit', 'Changes']]
const THEME = 'zae-limiter-theme'
const UNDO_MS = 30000
const TELL_MS = 5000

function place() {
  const [path, parameters] = location.hash.replace(/^#\/?/, '').split('?')
  return { view: VIEWS.some(([name]) => name === path) ? path : '', asked: new URLSearchParams(parameters || '') }
}

function useTheme() {
  const dark = matchMedia('(prefers-color-scheme: dark)')
  const [chosen, setChosen] = useState(localStorage.getItem(THEME) || '')
  const [system, setSystem] = useState(dark.matches ? 'dark' : 'light')
  useEffect(() => {
    const follow = (event) => setSystem(event.matches ? 'dark' : 'light')
    dark.addEventListener('change', follow)
    return () => dark.removeEventListener('change', follow)
  }, [])
  const shown = chosen || system
  document.documentElement.dataset.theme = shown
  const turn = () => {
    const next = shown === 'dark' ? 'light' : 'dark'
    localStorage.setItem(THEME, next)
    setChosen(next)
  }
  return [shown, turn]
}

function TopBar({ view, me, find, setFind, lost, theme, turn, box }) {
  return html`<header class="top-bar">
    <a class="brand" href="#/"><svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <path d="M3 3.5h14l-1.700 11.700a2.100 2.100 0 0 1-2.100 1.800H6.800a2.100 2.100 0 0 1-2.100-1.800z" fill="none" stroke-width="1.5" />
      <path d="M4.200 10c1.700-1.200 3-.9 5.800 0s4.200.9 5.800-.3l-.8 5.100a1.900 1.900 0 0 1-1.900 1.500H6.900A1.900 1.900 0 0 1 5 14.800z" /></svg> zae-limiter</a>
    <span class="pill"><span class="soft">namespace</span> ${me.namespace}</span>
    <nav class="views" aria-label="Views">${VIEWS.map(([name, words]) => html`<a key=${name} href=${`#/${name}`} aria-current=${view === name ? 'page' : null}>${words}</a>`)}</nav>
    <span class="grow"></span>
    <label class="find"><svg width="13" height="13" viewBox="0 0 14 14" aria-hidden="true"><circle cx="6" cy="6" r="4.500" fill="none" stroke="currentColor" stroke-width="1.400" /><path d="m9.500 9.500 3.500 3.500" stroke="currentColor" stroke-width="1.400" /></svg>
      <span class="hidden-text">Find</span><input ref=${box} type="search" placeholder="Find a key, team or model" value=${find} onInput=${(event) => setFind(event.target.value)} /><kbd aria-hidden="true">/</kbd></label>
    ${!me.roles.includes('write') && html`<span class="chip info">read only</span>`}
    <span class=${`live ${lost ? 'lost' : ''}`} role="status"><i></i>${lost ? 'not connected' : 'live'}</span>
    <button class="button icon" aria-label=${`Switch to ${theme === 'dark' ? 'light' : 'dark'}`} onClick=${turn}>◐</button>
  </header>`
}

function Toast({ toast, dismiss }) {
  useEffect(() => {
    const timer = setTimeout(dismiss, toast.undo ? UNDO_MS : TELL_MS)
    return () => clearTimeout(timer)
  }, [toast])
  return html`<div class="toast" role="status"><span>${toast.words}</span>
    ${toast.undo && html`<button class="button small" onClick=${toast.undo}>Undo</button>`}
    <button class="button small icon" aria-label="Dismiss" onClick=${dismiss}>✕</button></div>`
}

function AskToken({ problem, done }) {
  const submit = (event) => {
    event.preventDefault()
    keepToken(new FormData(event.currentTarget).get('token').trim())
    done()
  }
  return html`<main id="main"><section class="card token" aria-labelledby="token-title">
    <div class="head"><h1 id="token-title">A token is needed</h1></div>
    <div class="body"><span class="soft">${problem} A token with the role read shows everything, one with write can change limits: <code>zae-limiter token create</code>.</span>
      <form onSubmit=${submit}><input name="token" type="password" aria-label="Token" autocomplete="off" required /><button class="button main">Enter</button></form></div>
  </section></main>`
}

function App({ me }) {
  const [at, setAt] = useState(place())
  const [find, setFind] = useState('')
  const [changing, setChanging] = useState(null)
  const [toast, setToast] = useState(null)
  const [theme, turn] = useTheme()
  const box = useRef(null)
  const live = useLive('/v1/attention')
  const may = { write: me.roles.includes('write') }
  const tell = (words, undo) => setToast({ words, undo })

  useEffect(() => {
    const moved = () => setAt(place())
    const keys = (event) => {
      if (event.key === '/' && !event.target.closest('input, select, dialog')) {
        event.preventDefault()
        box.current.focus()
      }
    }
    addEventListener('hashchange', moved)
    addEventListener('keydown', keys)
    return () => {
      removeEventListener('hashchange', moved)
      removeEventListener('keydown', keys)
    }
  }, [])
  useEffect(() => {
    const words = VIEWS.find(([name]) => name === at.view)[1]
    document.title = `${words} · ${me.namespace} · zae-limiter`
  }, [at.view])

  const changed = (words, undo) => {
    setChanging(null)
    live.again()
    tell(words, async () => {
      try {
        await undo()
        tell('It is as it was before.')
      } catch (error) {
        tell(error.status === 412 ? 'Not undone: another operator has changed it since.' : error.message)
      }
      live.again()
    })
  }
  const view = live.data
  const names = { entities: [], resources: [] }
  if (view) {
    names.entities = [...new Set([...view.noisiest.map((one) => one.entity), ...view.rows.map((row) => row.entity)])]
    names.resources = [...new Set(view.rows.map((row) => row.resource))]
  }
  const change = (levels, row) => setChanging({ levels, row })
  const changeRow = (row) => setChanging({ levels: levelsOf(row), start: levelThatBinds(row), row })
  let shown = null
  if (at.view === 'entities') shown = html`<${Entities} find=${find} may=${may} change=${change} />`
  else if (at.view === 'limits') shown = html`<${Limits} find=${find} may=${may} change=${change} />`
  else if (at.view === 'usage') shown = html`<${Usage} asked=${at.asked} suggestions=${names} theme=${theme} />`
  else if (at.view === 'audit') shown = html`<${Audit} asked=${at.asked} />`
  else if (view) shown = html`<${Overview} view=${view} find=${find} may=${may} change=${changeRow} tell=${tell} theme=${theme} asked=${at.asked} />`
  else shown = html`<main id="main">${live.error ? html`<div class="error" role="alert">${live.error.message}</div>` : html`<div class="empty">Looking…</div>`}</main>`
  return html`<div>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('main a, main button, main input')?.focus() }}>Skip to the content</a>
    <${TopBar} view=${at.view} me=${me} find=${find} setFind=${setFind} lost=${Boolean(live.error)} theme=${theme} turn=${turn} box=${box} />
    ${shown}
    ${changing && html`<${ChangeDialog} ...${changing} close=${() => setChanging(null)} done=${changed} />`}
    ${toast && html`<${Toast} toast=${toast} dismiss=${() => setToast(null)} />`}
  </div>`
}

async function start() {
  const root = document.createElement('div')
  document.body.append(root)
  const enter = async () => {
    try {
      await begin()
      const me = await read('/v1/me')
      render(html`<${App} me=${me} />`, root)
    } catch (error) {
      const words = error.status === 401 || error.status === 403 ? error.message : `${error.message} `
      document.documentElement.dataset.theme = localStorage.getItem(THEME) || ''
      if (error.status === 401 || error.status === 403) render(html`<${AskToken} key=${Date.now()} problem=${`${words}. `} done=${enter} />`, root)
      else render(html`<main><div class="error" role="alert">${words}<button class="button small" onClick=${enter}>Try again</button></div></main>`, root)
    }
  }
  await enter()
}

start()
