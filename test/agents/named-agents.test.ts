import { join } from 'node:path'
import { defineEnvironment, evaluate, forkRollout, replayRun, z, type NamedAgent } from 'millrace'
import { ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { agentNamed, agentNames } from '../../src/agents/index.ts'
import { page, tableRows } from '../support/pages.ts'
import { openRun, scripted } from '../support/replay/stored-runs.ts'

const needed: Partial<Record<string, object>> = {
  external: { command: 'true' },
  orchestrate: { agents: { reader: { description: 'Reads.', agent: 'plan' } } },
}

test('every agent can be made by its name, and is on the page of agents', async () => {
  for (const name of agentNames) expect(agentNamed({ name, ...needed[name] }), name).toBeTypeOf('function')
  const listed = tableRows(await page('docs/agents.md'), 'The agents').map(([name]) => name)
  expect(new Set(listed)).toEqual(new Set(agentNames))
})

test.each(agentNames)('the page of agents has the options of %s, and no others', async (name) => {
  const { text } = await page('docs/agents.md')
  const section = text.split('\n## ').find((each) => each.startsWith(`${name}\n`)) ?? ''
  const [table = ''] = /^\| option \|[\s\S]*?\n\n/m.exec(section) ?? []
  const documented = Array.from(table.matchAll(/^\| `(\w+)` /gm), ([, option]) => option)
  const known = documented.length === 0 ? ['none'] : documented
  expect(section).not.toBe('')
  const refused = new RegExp(`agent ${name}: .*\`xxxxxxxx\` is not known; there are ([\\w, ]+)$`)
  let message = ''
  try {
    agentNamed({ name, xxxxxxxx: 1, ...needed[name] })
  } catch (error) {
    message = (error as Error).message
  }
  expect(new Set(refused.exec(message)?.[1]?.split(', ')), message).toEqual(new Set(known))
})

test.each<[string | NamedAgent, string]>([
  ['refin', 'there is no agent named "refin"; did you mean refine?'],
  ['my own', 'there is no agent named "my own"; the agents are toolLoop, '],
  [{ name: 'refine', turn: 2 }, 'agent refine: `turn` is not known; did you mean `turns`?'],
  [
    { name: 'refine', turns: 0 },
    'agent refine: the options of refine(): turns: must be a whole number from 1 on, not 0',
  ],
  [{ name: 'refine', turns: 'two' }, 'agent refine: turns: expected number'],
  [{ name: 'refine', agent: 'plann' }, 'there is no agent named "plann"; did you mean plan?'],
  [{ name: 'refine', agent: { maxCalls: 5 } }, 'agent refine: agent: must be an agent: its name, or its options with'],
  [{ name: 'orchestrate', agents: { reader: { tools: [] } } }, 'agent orchestrate: agents.reader.description: '],
  [
    { name: 'external', command: 'true', env: { PORT: 8080 } },
    `agent external: env.PORT: must be a text (on the command line with quotes, such as '"1"'), not 8080`,
  ],
  [{ name: 'external' }, 'external() needs either a `command` or a `url`'],
  [
    { name: 'external', command: 'true', url: 'http://127.0.0.1:5000' },
    'agent external: external() takes a `command` or a `url`, not both',
  ],
  [
    { name: 'orchestrate', agents: '{"reader": {"description": "Reads."}' },
    'agent orchestrate: agents: must be the agents by their names, as JSON, and this is not valid JSON: {"reader"',
  ],
  [{ name: 'orchestrate', agents: 5 }, 'agent orchestrate: agents: expected object, got number'],
  [{ name: 'toolLoop', turns: 2 }, 'agent toolLoop: `turns` is not known; there are none'],
])('%j is refused', (named, message) => {
  expect(() => agentNamed(named)).toThrow(message)
})

const environment = defineEnvironment({
  name: 'named',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Guess.',
  // The one that is named takes its place.
  agent: () => Promise.reject(new Error('not to be used')),
  reward: ({ answer }) => Number(answer) / 3,
})

const counts: Script = ({ messages }) => String(messages.filter(({ role }) => role === 'assistant').length + 1)

test('a run is asked for an agent by name, keeps it, and is another experiment with another one', async () => {
  await using runs = await temporaryRuns()
  const backend = new ScriptedBackend(counts)
  const launch = (agent: NamedAgent | 'refine') =>
    evaluate({
      environment,
      agent,
      model: scripted,
      backends: { scripted: [backend] },
      preflight: false,
      run: { root: runs.root, name: 'stored' },
    })
  const first = launch({ name: 'refine', turns: 2 })
  expect(await Array.fromAsync(first)).toMatchObject([{ outcome: 'completed', answer: '2', turns: 2 }])
  expect(await first.summary()).toMatchObject({ agent: { name: 'refine', turns: 2 } })
  await expect(launch('refine').summary()).rejects.toThrow('agent.turns 2, now not set')

  using reader = openRun(runs.root)
  for await (const report of replayRun(reader, { environment })) {
    expect(report, JSON.stringify(report)).toMatchObject({ verdict: 'identical' })
  }
  const fork = await forkRollout(reader, {
    rollout: '0-0',
    turn: 1,
    environment,
    preflight: false,
    backends: { scripted: [backend] },
    run: { root: runs.root, name: 'fork' },
  })
  expect(await Array.fromAsync(fork)).toMatchObject([{ answer: '2', turns: 2 }])
})

test('wrong options of an agent are found before anything is opened', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment,
    agent: { name: 'refine', turns: -1 },
    model: 'sim',
    run: { root: runs.root, name: 'none' },
  })
  await expect(evaluation.summary()).rejects.toMatchObject({ code: 'config_invalid' })
  expect(() => openRun(runs.root, 'none')).toThrow('none')
})

test('workers make the agent by its name', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: join(import.meta.dirname, '../fixtures/counting.ts'),
    options: { count: 2 },
    agent: 'singleTurn',
    model: 'sim',
    workers: 1,
    run: { root: runs.root },
  })
  // The simulator would call the calculator, which `singleTurn` does not declare.
  expect(await Array.fromAsync(evaluation)).toMatchObject([
    { outcome: 'completed', turns: 1, toolCalls: 0 },
    { outcome: 'completed', turns: 1, toolCalls: 0 },
  ])
})
