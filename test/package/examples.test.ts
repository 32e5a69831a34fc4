import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { evaluate } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { exampleNames } from '../../src/env/index.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')

/** Each example, small enough for a test: what it is run with, and what it says about itself beside its reward. */
const examples = {
  arithmetic: { attempts: 2, limit: 50, components: ['correct', 'usedTool'] },
  delegate: { attempts: 2, limit: 20, components: ['reward'] },
  'diverse-primes': { attempts: 4, limit: 25, components: ['prime', 'distinct'] },
  // Every rollout is a process of its own.
  external: { attempts: 1, limit: 20, components: ['correct', 'usedTool'] },
  'guess-number': { attempts: 2, limit: 50, components: ['guesses', 'reward'] },
  // Every score is a process of its own.
  'jsonl-questions': { attempts: 1, limit: 20, components: ['correct', 'hasAnswer'] },
  'judged-answers': { attempts: 4, limit: 18, components: ['agrees', 'words'] },
  // Every rollout is a process of its own, and so is every score, with more processes of theirs.
  patch: { attempts: 1, limit: 12, components: ['resolved', 'changedLines'] },
  research: { attempts: 2, limit: 12, components: ['reward'] },
  // Every rollout has a process of its own.
  'tool-servers': { attempts: 1, limit: 12, components: ['correct', 'noted'] },
  trail: { attempts: 2, limit: 25, components: ['right', 'pages'] },
} as const

async function runExample(name: keyof typeof examples, skill: number) {
  const { attempts, limit } = examples[name]
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: name,
    model: { name: 'sim', simulator: { skill } },
    // The judge never errs, so that what is measured is the policy.
    models: { judge: { name: 'judge', simulator: { skill: 1 } } },
    judge: 'judge',
    attempts,
    limit,
    seed: 1,
    run: { root: runs.root },
  })
  const records = await Array.fromAsync(evaluation)
  return { records, summary: await evaluation.summary() }
}

test('every example has an entry in this test', async () => {
  expect(Object.keys(examples)).toEqual(await exampleNames())
})

describe.each(Object.keys(examples) as (keyof typeof examples)[])('%s', (name) => {
  const { attempts, limit, components } = examples[name]

  test('is solved by a skilled model, and less well by a weaker one', async () => {
    const [skilled, other] = await Promise.all([runExample(name, 1), runExample(name, 0.7)])
    for (const { records, summary } of [skilled, other]) {
      expect(records).toHaveLength(attempts * limit)
      expect(summary).toMatchObject({ end: 'complete', tasks: limit, scored: attempts * limit })
      expect(summary.outcomes.completed).toBe(attempts * limit)
      expect(Object.keys(summary.components).toSorted()).toEqual(components.toSorted())
    }
    const [high = Number.NaN, low = Number.NaN] = [skilled.summary.score?.mean, other.summary.score?.mean]
    expect(high).toBeGreaterThanOrEqual(0.95)
    expect(low).toBeLessThan(high - 0.05)
    // Not nothing either: delegate needs five right decisions in a row, which 0.7 gives one time in six.
    expect(low).toBeGreaterThan(0.1)
    if (name === 'tool-servers') expect(skilled.summary.components['noted']?.mean).toBe(1)
    if (name === 'delegate') expect(skilled.records.map(({ children }) => children)).toEqual(Array(40).fill(3))
  })
})

describe('as processes that a user would start', () => {
  const start = async (args: readonly string[]) => {
    await using runs = await temporaryRuns()
    return await run(
      process.execPath,
      ['--disable-warning=ExperimentalWarning', '--import', './test/own-sources.ts', ...args],
      { cwd: root, env: { PATH: process.env['PATH'], MILLRACE_RUNS: runs.root }, timeout: 120_000 },
    )
  }

  test('library/main.ts checks its own result', async () => {
    const { stdout, stderr } = await start(['examples/library/main.ts'])
    expect(stdout).toMatch(/^run arithmetic--sim--/)
    expect(stdout).toMatch(/^mean reward 0\.8\d\d \(0\.\d+ to 0\.\d+\) over 100 rollouts$/m)
    expect(stderr).toBe('')
  })

  test('the tests of the arithmetic example pass', async () => {
    const { stdout } = await start(['--test', '--test-reporter=tap', 'examples/arithmetic/environment.test.ts'])
    expect(stdout).toMatch(/^# pass 2$/m)
    expect(stdout).toMatch(/^# fail 0$/m)
  })
})
