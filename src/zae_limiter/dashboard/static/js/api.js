// What the page asks of the service, as whom, and how often.

import { useEffect, useRef, useState } from '../vendor/preact.js'

const STORED = 'zae-limiter-token'
const REFRESH_MS = 2000

let token = sessionStorage.getItem(STORED)

export class Problem extends Error {
  constructor(status, detail) {
    super(detail)
    this.status = status
  }
}

export function keepToken(text) {
  token = text
  sessionStorage.setItem(STORED, text)
}

// The command opens the page with a token that works once, behind the #: it is no part of what is sent or logged.
export async function begin() {
  const given = /^#once=([\w-]+)/.exec(location.hash)
  if (!given) return
  history.replaceState(null, '', location.pathname)
  const answer = await ask('POST', '/v1/session', { once: given[1] })
  keepToken(answer.data.token)
}

export async function ask(method, path, body, etag) {
  const headers = {}
  if (token) headers.authorization = `Bearer ${token}`
  if (body !== undefined) headers['content-type'] = 'application/json'
  if (etag) headers['if-match'] = etag
  let reply
  try {
    reply = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) })
  } catch {
    throw new Problem(0, 'The service does not answer.')
  }
  const text = await reply.text()
  let data = null
  try {
    data = text ? JSON.parse(text) : null
  } catch {
    data = null
  }
  if (!reply.ok) throw new Problem(reply.status, (data && data.detail) || reply.statusText)
  return { data, etag: reply.headers.get('etag') }
}

export const read = async (path, body) => (await ask(body === undefined ? 'GET' : 'POST', path, body)).data

export function query(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== '')
  return given.length ? `${path}?${new URLSearchParams(given)}` : path
}

// What a path says, asked again while the page is visible. `body`: it is posted. `every` 0: asked once.
export function useLive(path, { body, every = REFRESH_MS } = {}) {
  const [state, setState] = useState({ data: null, error: null })
  const asked = useRef(0)
  const [wish, setWish] = useState(0)
  const sent = body === undefined ? undefined : JSON.stringify(body)
  useEffect(() => {
    if (!path) return undefined
    const number = ++asked.current
    let timer = 0
    const ours = () => number === asked.current
    const look = async () => {
      if (!document.hidden) {
        try {
          const data = await read(path, sent === undefined ? undefined : JSON.parse(sent))
          if (ours()) setState({ data, error: null })
        } catch (error) {
          if (ours()) setState((before) => ({ data: before.data, error }))
        }
      }
      if (ours() && every) timer = setTimeout(look, every)
    }
    const seen = () => {
      if (document.hidden || !ours()) return
      clearTimeout(timer)
      look()
    }
    look()
    document.addEventListener('visibilitychange', seen)
    return () => {
      asked.current += 1
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', seen)
    }
  }, [path, sent, every, wish])
  return { ...state, again: () => setWish((number) => number + 1) }
}
