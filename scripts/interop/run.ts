/**
 * `npm run interop [-- <part> ...]`: Millrace together with programs of others, installed into a temporary folder. It needs npm,
 * python3 with venv, and registries that npm and pip can reach; without them it says so and fails. It takes a few minutes. Every
 * program has a time limit, and ends with everything that it started.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { agents } from './agents/agents.ts'
import { clients } from './clients.ts'
import { engines } from './engines/engines.ts'
import { parquet } from './parquet.ts'
import { type Counts, type Part, say, sumOf } from './part.ts'
import { nemoGym } from './nemo-gym/nemo-gym.ts'
import { python } from './python.ts'
import { tokenizers } from './tokenizers/tokenizers.ts'
import { train } from './train.ts'

const parts: Readonly<Record<string, Part>> = {
  clients,
  agents,
  parquet,
  python,
  tokenizers,
  train,
  engines,
  'nemo-gym': nemoGym,
}

// What parts have started is ended when this process exits.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1))
process.exitCode = await main(process.argv.slice(2))

async function main(names: readonly string[]): Promise<number> {
  const chosen = names.length > 0 ? names : Object.keys(parts)
  if (chosen.some((name) => !(name in parts))) {
    process.stderr.write(`usage: npm run interop [-- ${Object.keys(parts).join('|')} ...]\n`)
    return 2
  }
  const counts: Counts[] = []
  for (const [name, part] of Object.entries(parts)) if (chosen.includes(name)) counts.push(await runPart(name, part))
  const { passed, failed } = sumOf(counts)
  say(`${passed} passed, ${failed} failed`)
  return failed === 0 ? 0 : 1
}

async function runPart(name: string, part: Part): Promise<Counts> {
  const folder = await mkdtemp(join(tmpdir(), `millrace-interop-${name}-`))
  try {
    return await part(folder)
  } catch (error) {
    process.stderr.write(`interop ${name}: ${error instanceof Error ? error.message : String(error)}\n`)
    return { passed: 0, failed: 1 }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
