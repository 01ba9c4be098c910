// A client of the service, in Node: a lease is a URL. Nothing to install.
//   node client.mjs http://127.0.0.1:8080 [TOKEN]
const [base, token] = process.argv.slice(2)
const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) }

async function ask(path, body, more = {}) {
  for (let attempt = 0; attempt < 5; attempt++) {
    const answer = await fetch(base + path, { method: 'POST', headers: { ...headers, ...more }, body: JSON.stringify(body) })
    if (answer.status !== 429 && answer.status !== 503) return answer
    const wait = Number(answer.headers.get('retry-after-ms') ?? 1000)
    await new Promise(done => setTimeout(done, Math.min(wait, 10_000)))
  }
  throw new Error(`${path}: no luck in five attempts`)
}

async function limited(entity, resource, estimate, work) {
  // The same key for every attempt: charged once, even if an answer is lost.
  const key = { 'idempotency-key': crypto.randomUUID() }
  const answer = await ask('/v1/leases', { entity, resource, consume: estimate }, key)
  if (!answer.ok) throw new Error((await answer.json()).detail)
  const { lease } = await answer.json()
  if (lease === null) return work() // the store was away, and the policy is to let calls through
  try {
    const used = await work()
    return await (await ask(`/v1/leases/${lease}/settle`, { actual: used })).json()
  } catch (error) {
    await fetch(`${base}/v1/leases/${lease}`, { method: 'DELETE', headers })
    throw error
  }
}

const settled = await limited('node', 'gpt-4', { rpm: 1, tpm: 500 }, async () => ({ tpm: 321 }))
console.log('settled', JSON.stringify(settled.consumed))
await limited('node', 'gpt-4', { rpm: 1, tpm: 500 }, async () => { throw new Error('the model failed') })
  .catch(error => console.log('given back after:', error.message))
