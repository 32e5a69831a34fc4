/** The measured process: an environment behind `POST /run` of NeMo Gym's protocol, as `millrace serve --nemo-gym` has it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { registerResolver } from '../../src/env/index.ts'
import { settleHeapForRollouts } from '../../src/kit/index.ts'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'

export interface WireSubjectInput {
  readonly model: string
  readonly concurrency: number
}

const { model, concurrency } = JSON.parse(process.argv[2] ?? '{}') as WireSubjectInput
registerResolver()
// As the command line does.
settleHeapForRollouts()
const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
const service = await RolloutService.open({
  environment: join(import.meta.dirname, '../shared/environment.ts'),
  model: { name: 'mock', backends: [{ url: model }], price: { input: 0, output: 0 } },
  concurrency,
  preflight: false,
  run: { root },
})
const httpServer = await RolloutServer.open({ service, port: 0, nemoGym: { failures: 'class' } })
console.log(JSON.stringify({ url: httpServer.url }))
process.once('SIGTERM', () => void end())

async function end(): Promise<void> {
  await service.drain()
  await httpServer.close()
  await service.close()
  await rm(root, { recursive: true, force: true })
  process.exit(0)
}
