/** Asks once for a rollout with its tokens, again for the same one later, and reads both replies as they come. */
import { request } from 'undici'

export interface HugeClientInput {
  readonly origin: string
  readonly control: string
}

export interface HugeReply<Figures> {
  readonly bytes: number
  readonly wallMs: number
  readonly figures: Figures
}

const { origin, control } = JSON.parse(process.argv[2] ?? '{}') as HugeClientInput

const posted = await measured(async () => {
  const body = JSON.stringify({ task: { left: 0, right: 0 }, include: 'tokens' })
  const headers = { 'content-type': 'application/json' }
  return await read(await request(`${origin}/v1/rollouts`, { method: 'POST', headers, body }))
})
const [, id = ''] = /^{"id":"([^"]+)"/.exec(posted.start) ?? []
const reread = await measured(async () => await read(await request(`${origin}/v1/rollouts/${id}?include=tokens`)))
console.log(JSON.stringify({ posted: { ...posted, start: undefined }, read: { ...reread, start: undefined } }))

async function measured(ask: () => Promise<{ bytes: number; start: string }>) {
  await (await request(`${control}/start-turns`)).body.dump()
  const startedAt = performance.now()
  const answer = await ask()
  const wallMs = performance.now() - startedAt
  const figures = await (await request(`${control}/stop`)).body.json()
  return { ...answer, wallMs, figures }
}

async function read({ statusCode, body }: Awaited<ReturnType<typeof request>>) {
  let bytes = 0
  let start = ''
  for await (const chunk of body) {
    if (bytes === 0) start = (chunk as Buffer).toString('latin1', 0, 64)
    bytes += (chunk as Buffer).length
  }
  if (statusCode !== 200) throw new Error(`the server answered ${statusCode}: ${start}`)
  return { bytes, start }
}
