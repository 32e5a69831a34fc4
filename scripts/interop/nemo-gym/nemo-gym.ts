import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type Counts, installPython, runCase, say, sumOf } from '../part.ts'
import { compareAggregates } from './aggregate.ts'
import { findPython } from './find-python.ts'
import { GymCases } from './gym-cases.ts'
import { NemoGym } from './gym-servers.ts'
import { modelServer } from './model-cases.ts'

const bodies = 300

/**
 * NeMo Gym 0.4.0 from PyPI together with Millrace. It needs Python 3.12 or later and Linux. The package has 1.4 GB with all that it
 * needs, and is kept in the folder that MILLRACE_INTEROP_CACHE names.
 */
export async function nemoGym(folder: string): Promise<Counts> {
  const base = await findPython()
  say('installing NeMo Gym 0.4.0')
  const parent = process.env['MILLRACE_INTEROP_CACHE'] ?? folder
  const python = await installPython(
    join(parent, 'nemo-gym-0.4.0'),
    join(import.meta.dirname, 'requirements.txt'),
    base,
  )
  const counts = [await runCase('aggregate metrics equal to the last digit', () => aggregates(python))]
  await using cases = await GymCases.open(new NemoGym(python, folder), folder)
  counts.push(await runCase('the collector, with bad rows', () => cases.collection()))
  counts.push(await runCase('CPU of /run', () => cases.cost()))
  counts.push(await runCase('abandoned runs', () => cases.abandoned()))
  counts.push(await runCase('integers above 2^53', () => cases.largeIntegers()))
  counts.push(await runCase('our model server', () => modelServer(new NemoGym(python, folder), folder)))
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
