import { join } from 'node:path'
import { randomSession, sessionEntries } from '../../test/support/gateway/random-session.ts'
import { writeStoredRun } from '../../test/support/store/write-stored-run.ts'
import { check, type Counts, installPython, runCases, say } from './part.ts'
import { runProgram } from './run-program.ts'

const here = import.meta.dirname
const millrace = join(here, '..', '..', 'bin', 'millrace.js')
const commandMs = 2 * 60_000

/** The Parquet files of a run of rollouts and of a gateway's run, in each reader that docs/export.md names. */
export async function parquet(folder: string): Promise<Counts> {
  say('installing pyarrow, pandas, polars and datasets')
  const python = await installPython(folder, join(here, 'parquet-requirements.txt'))
  const command = async (...words: string[]): Promise<void> => {
    const all = [millrace, ...words, '--runs', join(folder, 'runs')]
    check(await runProgram(process.execPath, all, { timeoutMs: commandMs }), `millrace ${words.join(' ')} failed`)
  }
  say('exporting')
  await command('eval', 'arithmetic', '-m', 'sim', '--tokens', '-n', '4', '--limit', '50', '--run', 'rollouts')
  const created = { name: 'sessions', configDigest: 'digest', config: { kind: 'gateway' }, provenance: {} }
  const seeds = Array.from({ length: 200 }, (_, seed) => seed)
  writeStoredRun(
    join(folder, 'runs', 'sessions'),
    created,
    seeds.flatMap((seed) => sessionEntries(randomSession({ seed }))),
  )
  for (const run of ['rollouts', 'sessions']) {
    for (const rows of ['merged', 'interactions']) {
      for (const format of ['binary', 'parquet']) {
        const file = join(folder, `${run}-${rows}.${format}`)
        await command('export', run, '--rows', rows, '--advantage', 'grpo', '--format', format, '-o', file)
      }
    }
  }
  say('every value of the Parquet files against the binary form')
  // Their own threads would only be in each other's way.
  const env = { ...process.env, POLARS_MAX_THREADS: '1', OMP_NUM_THREADS: '1', HF_HUB_OFFLINE: '1' }
  return await runCases(python, ['-B', join(here, 'parquet_readers.py'), folder], { timeoutMs: commandMs, env })
}
