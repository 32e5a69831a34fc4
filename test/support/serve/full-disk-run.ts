/**
 * A server on a disk that is too small for what it is asked, then one on the same run with more room. Prints what became of it as one
 * line of JSON. Expects to be in a mount namespace of its own, with a tmpfs mounted on the folder it is given.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { MillraceError } from '../../../src/errors/index.ts'
import { registerResolver } from '../../../src/env/index.ts'
import { RolloutServer, RolloutService } from '../../../src/serve/index.ts'
import { RunReader } from '../../../src/store/index.ts'

const count = 3_000
const [, , mount = ''] = process.argv
const run = { root: mount, name: 'served' }
registerResolver()

const tasks = Array.from({ length: count }, (_, index) => ({ left: index, right: 1 }))
const first = await open()
const { results } = await first.service.submit({ requestId: 'all', tasks, isDetached: true })
const reported: string[] = []
const failure = await readAll(results, reported)
const ready = await (await fetch(`${first.httpServer.url}/ready`)).json()
const refused = await fetch(`${first.httpServer.url}/v1/rollouts`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ task: tasks[0] }),
})
const refusal = { status: refused.status, body: await refused.json() }
await first.httpServer.close()
await first.service.close()

execFileSync('mount', ['-o', 'remount,size=64m', mount])
const second = await open()
const again = await second.service.submit({ requestId: 'all', tasks })
const ended: string[] = []
const secondFailure = await readAll(again.results, ended)
await second.httpServer.close()
await second.service.close()

using reader = RunReader.open(join(mount, 'served'))
process.stdout.write(
  JSON.stringify({
    failure,
    ready,
    refusal,
    secondFailure,
    reported: reported.length,
    ended: new Set(ended).size,
    lost: reported.filter((id) => !reader.hasEnded(id)).length,
    problems: reader.integrity(),
  }),
)

async function open(): Promise<{ service: RolloutService; httpServer: RolloutServer }> {
  const service = await RolloutService.open({
    environment: new URL('../../fixtures/counting.ts', import.meta.url).pathname,
    model: 'sim',
    concurrency: 100,
    seed: 3,
    run,
  })
  return { service, httpServer: await RolloutServer.open({ service, port: 0 }) }
}

/** The code it failed with, if it did. */
async function readAll(source: AsyncIterable<{ id: string }>, ids: string[]): Promise<string | null> {
  try {
    for await (const { id } of source) ids.push(id)
    return null
  } catch (error) {
    return MillraceError.from(error, 'internal').code
  }
}
