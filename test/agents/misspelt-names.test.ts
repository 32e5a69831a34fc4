import {
  defineEnvironment,
  external,
  orchestrate,
  parallel,
  reflect,
  toolLoop,
  userSimulator,
  z,
  type Agent,
  type SubAgent,
} from 'millrace'
import { runScripted, calls } from 'millrace/testing'
import { expect, test } from 'vitest'

const reader = (more: Partial<SubAgent>): Agent =>
  orchestrate({ agents: { reader: { description: 'Reads.', ...more } } })

const noTool = 'there is no tool "serch" to hand on; did you mean "search"?'
const noModel = 'there is no model named sparrow; this run has scripted'

test.each<[what: string, agent: Agent, message: string]>([
  ['a tool of an agent of orchestrate', reader({ tools: ['serch'] }), `agent reader of orchestrate(): ${noTool}`],
  [
    'a tool that is like no other',
    reader({ tools: ['xyz'] }),
    'there is no tool "xyz" to hand on; the tools are search and read',
  ],
  ['a model of an agent of orchestrate', reader({ model: 'sparrow' }), `agent reader of orchestrate(): ${noModel}`],
  [
    'a tool of the orchestrator',
    orchestrate({ agents: { reader: { description: 'Reads.' } }, tools: ['serch'] }),
    noTool,
  ],
  ['a model of reflect', reflect({ model: 'sparrow' }), `the options of reflect(): ${noModel}`],
  ['a tool of reflect', reflect({ tools: ['serch'] }), `the options of reflect(): ${noTool}`],
  ['a model of parallel', parallel({ choose: 'select', model: 'sparrow' }), `the options of parallel(): ${noModel}`],
  ['a model of userSimulator', userSimulator({ model: 'sparrow' }), `the options of userSimulator(): ${noModel}`],
  [
    'a model of external',
    external({ command: 'true', models: { small: 'sparrow' } }),
    `the options of external(): ${noModel}`,
  ],
  ['a tool of an own agent', async (context) => context.requireNames({ tools: ['serch'] }), noTool],
])('%s that does not exist ends the rollout before the first model call', async (_what, agent, message) => {
  const { records, backend } = await runScripted({ environment: environmentWith(agent), retries: 0, script: () => 'x' })
  expect(records).toMatchObject([
    {
      outcome: 'agent_error',
      reward: null,
      error: { code: 'agent_failed', message: expect.stringContaining(message) },
    },
  ])
  expect(backend.requests).toHaveLength(0)
})

test('a misspelt name in an agent of an agent ends the rollout when that one starts', async () => {
  const environment = environmentWith(reader({ agent: reader({ model: 'sparrow' }) }))
  const { records } = await runScripted({ environment, retries: 0, script: () => calls({ reader: { task: 'Read.' } }) })
  expect(records).toMatchObject([
    { outcome: 'agent_error', reward: null, error: { message: expect.stringContaining(noModel) } },
  ])
})

test('a sub-agent may use tools of the rollout that its caller may not', async () => {
  const inner: SubAgent = { description: 'Reads.', tools: ['read'], agent: toolLoop() }
  const outer = orchestrate({
    agents: { editor: { description: 'Edits.', tools: [], agent: orchestrate({ agents: { inner } }) } },
    tools: [],
  })
  const { records } = await runScripted({
    environment: environmentWith(outer),
    script: ({ tools, messages }) => {
      const [name = ''] = tools.map((tool) => tool.function.name)
      return messages.at(-1)?.role === 'tool' || name === 'read' ? name : calls({ [name]: { task: 'Read.' } })
    },
  })
  expect(records).toMatchObject([{ outcome: 'completed', children: 2 }])
})

function environmentWith(agent: Agent) {
  return defineEnvironment({
    name: 'names',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Which is the oldest book?',
    tools: {
      search: { parameters: z.object({}), run: () => 'found' },
      read: { parameters: z.object({}), run: () => 'read' },
    },
    agent,
    reward: () => 1,
  })
}
