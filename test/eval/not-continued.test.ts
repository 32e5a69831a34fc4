import { defineEnvironment, evaluate, z, type EvaluateOptions, type RunInfo } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

interface Launch {
  readonly root: string
  /** What the module of the environment says. */
  readonly module?: { readonly maxTurns?: number; readonly temperature?: number }
  readonly options?: Partial<EvaluateOptions>
  /** Stopped, as by Ctrl-C twice, in the middle of its second rollout. */
  readonly isCutOff?: boolean
}

async function sit({ root, module = {}, options, isCutOff = false }: Launch): Promise<RunInfo> {
  const { maxTurns, temperature } = module
  let asked = 0
  const backend = new ScriptedBackend(({ signal }) => {
    asked += 1
    if (!isCutOff || asked === 1) return 'done'
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  })
  const evaluation = evaluate({
    environment: defineEnvironment({
      name: 'rows',
      task: z.object({ row: z.number() }),
      tasks: () => [{ row: 0 }, { row: 1 }],
      prompt: ({ task }) => `row ${task.row}`,
      reward: () => 1,
      ...(maxTurns !== undefined && { limits: { maxTurns } }),
      ...(temperature !== undefined && { sampling: { temperature } }),
    }),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    concurrency: 1,
    preflight: false,
    run: { root },
    ...options,
  })
  for await (const _record of evaluation) if (isCutOff) break
  return await evaluation.started
}

test('a launch with edited limits starts a new run, and names the run it does not continue and why', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const first = await sit({ root, module: { maxTurns: 10 }, isCutOff: true })
  const edited = await sit({ root, module: { maxTurns: 12, temperature: 0.5 } })
  expect(edited.name).not.toBe(first.name)
  expect(edited.notices).toEqual([
    `this is a new run: ${first.name} is unfinished and is not continued, because it began with other settings: limits.maxTurns 10, now 12; sampling.temperature not set, now 0.5. Use the former settings to continue it.`,
  ])
  // As it says: in the module, or beside it.
  const continued = await sit({ root, module: { maxTurns: 12 }, options: { limits: { maxTurns: 10 } } })
  expect(continued).toMatchObject({ name: first.name, resumed: 1 })
})

test('--retry-failed with an unknown run name is refused and starts no run', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  await sit({ root, options: { run: { root, name: 'nightly' } } })
  await expect(sit({ root, options: { run: { root, name: 'nighty', retryFailed: true } } })).rejects.toMatchObject({
    code: 'run_not_found',
    rawMessage: `there is no run named nighty in ${root} to continue; \`millrace list\` shows all runs`,
  })
  const again = await sit({ root, options: { run: { root, name: 'nightly', retryFailed: true } } })
  expect(again).toMatchObject({ name: 'nightly', resumed: 2 })
})

test('a launch with another command, or with resume: never, mentions no other run', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  await sit({ root, isCutOff: true })
  expect(await sit({ root, options: { attempts: 2 } })).toMatchObject({ notices: [] })
  const insists = { root, module: { maxTurns: 3 }, options: { run: { root, resume: 'never' as const } } }
  expect(await sit(insists)).toMatchObject({ notices: [] })
})

test('--retry-failed accepts longer time limits for the wall clock and the reward', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const first = await sit({ root })
  const limits = { wallTimeoutMs: 60_000, tailMs: 10_000 }
  expect(await sit({ root, options: { limits, run: { root, retryFailed: true } } })).toMatchObject({ name: first.name })
})

test.each([
  ['run again', { retryFailed: true }, false],
  ['continue', { resume: 'required' as const }, true],
])('a launch that finds no run to %s names the likely run and the difference', async (_, run, isCutOff) => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const { name } = await sit({ root, isCutOff })
  const asked = sit({ root, options: { limits: { timeoutMs: 60_000 }, run: { root, ...run } } })
  await expect(asked).rejects.toMatchObject({
    code: 'run_not_found',
    rawMessage: expect.stringContaining(
      `run ${name} began with other settings: limits.timeoutMs 1800000, now 60000. Repeat those (all are in its run.json), or start a new run.`,
    ),
  })
})
