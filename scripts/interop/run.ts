/**
 * `npm run interop [-- <part> ...]`: Millrace together with programs of others, installed into a temporary folder, or into
 * the one that MILLRACE_INTEROP_CACHE names. It says what each part needs, beside registries that npm and pip can reach; without that
 * a part fails and says so. Every program has a time limit, and ends with everything that it started.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { agents } from './agents/agents.ts'
import { areal } from './areal/areal.ts'
import { clients } from './clients.ts'
import { engines } from './engines/engines.ts'
import { parquet } from './parquet.ts'
import { type Counts, type Part, say, sumOf } from './part.ts'
import { nemoGym } from './nemo-gym/nemo-gym.ts'
import { python } from './python.ts'
import { tokenizers } from './tokenizers/tokenizers.ts'
import { train } from './train.ts'

interface ListedPart {
  readonly run: Part
  /** Beside Node. */
  readonly needs: string
}

const parts: Readonly<Record<string, ListedPart>> = {
  clients: { run: clients, needs: 'npm, python3 with venv' },
  agents: { run: agents, needs: 'Linux, npm, python3, bash, curl; 760 MB' },
  parquet: { run: parquet, needs: 'python3 with venv' },
  python: { run: python, needs: 'python3 with venv' },
  tokenizers: { run: tokenizers, needs: 'python3 with venv' },
  train: { run: train, needs: 'python3 with venv' },
  engines: { run: engines, needs: 'Linux, python3 with venv; 5.9 GB' },
  areal: { run: areal, needs: 'Linux, Python 3.11 or 3.12 with venv; 7.7 GB' },
  'nemo-gym': { run: nemoGym, needs: 'Linux, Python 3.12 or later with venv, curl; 1.4 GB' },
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
  const all = Object.entries(parts).filter(([name]) => chosen.includes(name))
  for (const [name, { needs }] of all) say(`${name} needs ${needs}`)
  for (const [name, { run }] of all) counts.push(await runPart(name, run))
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
