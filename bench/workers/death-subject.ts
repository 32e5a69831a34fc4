/** The measured process: a server whose only worker is killed again and again. Prints one line of figures. */
import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { registerResolver } from '../../src/env/index.ts'
import { RolloutService } from '../../src/serve/index.ts'

export interface DeathInput {
  readonly deaths: number
}

export interface DeathFigures {
  /** From each kill until the server no longer counts on that worker. */
  readonly noticedMs: readonly number[]
}

registerResolver()
const { deaths } = JSON.parse(process.argv[2] ?? '{}') as DeathInput
const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
const log = join(root, 'log')
process.env['MILLRACE_BENCH_LOG'] = log
try {
  await using service = await RolloutService.open({
    environment: join(import.meta.dirname, './death-environment.ts'),
    model: 'sim',
    workers: 1,
    preflight: false,
    run: { root },
  })
  const isReady = async (wanted: boolean): Promise<void> => {
    while (service.readiness().isReady !== wanted) await pause(1)
  }
  const noticedMs: number[] = []
  while (noticedMs.length < deaths) {
    await isReady(true)
    const pid = Number(readFileSync(log, 'utf8').trimEnd().split('\n').at(-1))
    const killedAt = performance.now()
    process.kill(pid, 'SIGKILL')
    await isReady(false)
    noticedMs.push(performance.now() - killedAt)
  }
  console.log(JSON.stringify({ noticedMs } satisfies DeathFigures))
} finally {
  await rm(root, { recursive: true, force: true })
}
