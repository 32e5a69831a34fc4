import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type Counts, installPython, runCase, say, sumOf } from '../part.ts'
import { compareAggregates } from './aggregate.ts'
import { findPython } from '../find-python.ts'
import { aggregateLoad } from './aggregate-load.ts'
import { GymBench } from './gym-bench.ts'
import { GymCases } from './gym-cases.ts'
import { exampleRows } from './gym-examples.ts'
import { NemoGym } from './gym-servers.ts'
import { GymTogether } from './gym-together.ts'
import { modelServer } from './model-cases.ts'

const bodies = 300

/**
 * NeMo Gym 0.4.0 from PyPI together with Millrace. It needs Python 3.12 or later and Linux. The package has 1.4 GB with all that it
 * needs, and is kept in the folder that MILLRACE_INTEROP_CACHE names.
 */
export async function nemoGym(folder: string): Promise<Counts> {
  const base = await findPython({ package: 'NeMo Gym 0.4.0', oldest: 12, newest: 14 })
  say('installing NeMo Gym 0.4.0')
  const parent = process.env['MILLRACE_INTEROP_CACHE'] ?? folder
  const python = await installPython(
    join(parent, 'nemo-gym-0.4.0'),
    join(import.meta.dirname, 'requirements.txt'),
    base,
  )
  const counts = [await runCase('aggregate metrics equal to the last digit', () => aggregates(python))]
  const gym = await NemoGym.find(python, folder)
  counts.push(await runCase('example rows of Python resources servers', () => exampleRows(gym, folder)))
  await using bench = await GymBench.open(gym, folder)
  const cases = new GymCases(bench)
  const together = new GymTogether(bench)
  const all: Readonly<Record<string, () => Promise<string>>> = {
    'the collector, with bad rows': () => cases.collection(),
    'CPU of /run': () => cases.cost(),
    'metrics of many rows': () => aggregateLoad(bench),
    'abandoned runs': () => cases.abandoned(),
    'integers above 2^53': () => cases.largeIntegers(),
    'simple_agent over our resources server': () => together.theirAgent(),
    'millrace eval over a Python resources server': () => together.ourAgent(),
    'a tool that fails, over a Python resources server': () => together.failingTool(),
    'integers above 2^53, over a Python resources server': () => together.largeIntegers(),
    'the reward profiler': () => together.profile(),
    'our model server': () => modelServer(gym, folder),
  }
  for (const [name, run] of Object.entries(all)) counts.push(await runCase(name, run))
  return sumOf(counts)
}

async function aggregates(python: string): Promise<string> {
  const seed = Date.now()
  const { same, failedThere, differences } = await compareAggregates(python, { count: bodies, seed })
  assert.deepEqual(
    differences.slice(0, 3),
    [],
    `${differences.length} of ${bodies} replies differ with the seed ${seed}`,
  )
  return `${same} of ${bodies} replies are the same; NeMo Gym itself fails on ${failedThere}`
}
