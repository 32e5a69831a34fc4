import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import {
  defineEnvironment,
  forkRollout,
  keepToolResults,
  replayRollout,
  z,
  type Agent,
  type Environment,
  type Message,
  type ReplayReport,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { openRun, scripted, storeRun } from '../support/replay/stored-runs.ts'

const base = { name: 'closed', task: z.object({}), tasks: () => [{}], prompt: () => 'Go.', reward: () => 1 }
const replies = (messages: readonly Message[]): number => messages.filter(({ role }) => role === 'assistant').length

/** A run of one environment, and its only rollout replayed in another. */
async function replayedIn(before: Environment, after: Environment, script: Script): Promise<ReplayReport> {
  await using runs = await temporaryRuns()
  await storeRun(runs.root, { environment: before, script })
  using reader = openRun(runs.root)
  expect(await replayRollout(reader, '0-0', { environment: before })).toMatchObject({ verdict: 'identical' })
  return await replayRollout(reader, '0-0', { environment: after })
}

describe('a replay makes no tool call that is not in the recording', () => {
  const sent = { mails: 0 }
  const mailing = (agent: Agent, toolFormat?: 'hermes') =>
    defineEnvironment({
      ...base,
      agent,
      ...(toolFormat && { toolFormat }),
      tools: {
        look: { parameters: z.object({}), run: () => 'seen' },
        mail: { parameters: z.object({}), run: () => `sent ${(sent.mails += 1)}` },
      },
    })
  const first: Agent = async ({ turn, tools, append }) => {
    const { calls: written } = await turn()
    append(...(await tools.call(written.slice(0, 1))))
    await turn()
  }

  test('in a text format, where one message answers several calls', async () => {
    const all: Agent = async ({ turn, tools, append }) => {
      const { calls: written } = await turn()
      append(...(await tools.call(written)))
      await turn()
    }
    const report = await replayedIn(mailing(first, 'hermes'), mailing(all, 'hermes'), ({ messages }) => {
      if (replies(messages) > 0) return 'done'
      return ['look', 'mail'].map((name) => `<tool_call>{"name": "${name}", "arguments": {}}</tool_call>`).join('\n')
    })
    expect(report).toMatchObject({
      verdict: 'different',
      why: expect.stringContaining('no answer for the call of tool mail'),
    })
    expect(sent.mails).toBe(0)
  })

  test('also if the agent continues after its end', async () => {
    const stubborn: Agent = async ({ turn, tools, append }) => {
      const { calls: written } = await turn()
      append(...(await tools.call(written.slice(0, 1))))
      await turn()
      await turn().catch(() => {})
      await tools.call(written.slice(1))
    }
    const report = await replayedIn(mailing(first), mailing(stubborn), ({ messages }) =>
      replies(messages) > 0 ? 'done' : calls({ look: {}, mail: {} }),
    )
    expect(report.verdict).toBe('different')
    expect(sent.mails).toBe(0)
  })
})

describe('a replay compares', () => {
  test('the messages that were sent instead of the conversation', async () => {
    const sending = (kept: number) =>
      defineEnvironment({
        ...base,
        contextPolicy: keepToolResults(kept, { every: 1 }),
        tools: { look: { parameters: z.object({}), resume: 'reuse', run: () => 'x'.repeat(300) } },
      })
    const { contextPolicy: _policy, ...without } = sending(1)
    const script: Script = ({ messages }) => (replies(messages) < 4 ? calls({ look: {} }) : 'done')
    for (const after of [sending(2), without]) {
      const report = await replayedIn(sending(1), after, script)
      expect(report.verdict).toBe('different')
      expect(report.differences[0]).toMatchObject({ what: expect.stringMatching(/^sent in turn \d$/) })
    }
  })

  test('the repairs of tool calls', async () => {
    const repairing = (coerce: boolean) =>
      defineEnvironment({
        ...base,
        ...(coerce && { repair: { coerce } }),
        tools: { look: { parameters: z.object({ n: z.number() }), resume: 'reuse', run: () => 'seen' } },
      })
    const script: Script = ({ messages }) => (replies(messages) < 1 ? calls({ look: { n: '5' } }) : 'done')
    const report = await replayedIn(repairing(true), repairing(false), script)
    expect(report.differences).toMatchObject([
      { what: 'tools of message 2', recorded: expect.stringContaining('coerce'), replayed: 'look: ok' },
      { what: 'toolRepairs' },
    ])
  })
})

describe('long outputs stored in files', () => {
  let asked = 0
  const spilling = defineEnvironment({
    ...base,
    toolOutput: { maxChars: 1_000, spill: true },
    tools: {
      big: { parameters: z.object({}), resume: 'reuse', run: () => 'x'.repeat(4_000) },
      other: { parameters: z.object({}), resume: 'rerun', run: () => String((asked += 1) % 10).repeat(4_000) },
    },
  })
  const nameIn = (messages: readonly Message[]) => /o-[0-9a-f]{12}/.exec(JSON.stringify(messages))?.[0]
  const reading: Script = ({ messages }) =>
    [calls({ big: {} }), calls({ read_tool_output: { output: nameIn(messages), offset: 3_990 } })][replies(messages)] ??
    'done'

  test('can be read in a fork', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: spilling, script: reading })
    using reader = openRun(runs.root)
    const evaluation = await forkRollout(reader, {
      rollout: '0-0',
      turn: 1,
      samples: 2,
      environment: spilling,
      preflight: false,
      model: scripted,
      backends: { scripted: [new ScriptedBackend(reading)] },
      run: { root: runs.root, name: 'forked' },
    })
    const read = (await Array.fromAsync(evaluation)).map(({ messages }) => messages.at(-2)?.content)
    expect(read).toEqual(['xxxxxxxxxx\n[this is the end]', 'xxxxxxxxxx\n[this is the end]'])
  })

  test('are left unchanged by a replay', async () => {
    await using runs = await temporaryRuns()
    const script: Script = ({ messages }) => (replies(messages) < 1 ? calls({ other: {} }) : 'done')
    const { folder } = await storeRun(runs.root, { environment: spilling, script })
    const outputs = join(folder, 'outputs', '0-0')
    const before = await readdir(outputs)
    using reader = openRun(runs.root)
    expect(await replayRollout(reader, '0-0', { environment: spilling })).toMatchObject({ verdict: 'different' })
    expect(await readdir(outputs)).toEqual(before)
  })
})

test('a hint names the actual tool, not its alias', async () => {
  const counting = (reward: (seen: number) => number) =>
    defineEnvironment({
      ...base,
      setup: () => ({ seen: 0 }),
      repair: { toolAlias: [{ from: ['browse'], to: 'fetch' }] },
      tools: { fetch: { parameters: z.object({}), run: (_, { state }) => `page ${(state.seen += 1)}` } },
      reward: ({ state }) => reward(state.seen),
    })
  const script: Script = ({ messages }) => (replies(messages) < 1 ? calls({ browse: {} }) : 'done')
  const report = await replayedIn(
    counting(() => 1),
    counting((seen) => seen),
    script,
  )
  expect(report.hints).toEqual([expect.stringMatching(/^fetch did not run/)])
})

test('a fork uses the resume mode of the actual tool, not of its alias', async () => {
  await using runs = await temporaryRuns()
  const fork = async (resume: 'reuse' | 'restart', name: string) => {
    const environment = defineEnvironment({
      ...base,
      repair: { toolAlias: [{ from: ['browse'], to: 'fetch' }] },
      tools: { fetch: { parameters: z.object({}), resume, run: () => 'a page' } },
    })
    const script: Script = ({ messages }) => (replies(messages) < 1 ? calls({ browse: {} }) : 'done')
    await storeRun(runs.root, { environment, script, name })
    using reader = openRun(runs.root, name)
    const evaluation = await forkRollout(reader, {
      rollout: '0-0',
      turn: 1,
      environment,
      preflight: false,
      model: scripted,
      backends: { scripted: [new ScriptedBackend(script)] },
      run: { root: runs.root, name: `${name}-forked` },
    })
    return await Array.fromAsync(evaluation)
  }
  expect(await fork('reuse', 'kept')).toMatchObject([{ outcome: 'completed' }])
  await expect(fork('restart', 'gone')).rejects.toThrow('tool browse was called in the first 1 turn')
})
