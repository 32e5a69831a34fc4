import type { CommandIo } from '../process/io.ts'
import type { ImitationName } from '../../simulator/index.ts'
import { defineCommand, type FlagSpec, type FlagTable } from '../command-line/command.ts'
import { portFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

const defaultPort = 8765

const probability = (help: string): FlagSpec => ({ kind: 'number', value: '<0..1>', group: 'Faults', help })
const amount = (group: string, help: string): FlagSpec => ({ kind: 'number', value: '<number>', group, help })

/** The flags have the names of the simulator's options, so that `--skill` here is `--sim.skill` of `eval`. */
const simulatorFlags = {
  imitate: {
    kind: 'choice',
    choices: ['vllm', 'sglang', 'openai', 'anthropic', 'millrace'] satisfies readonly ImitationName[],
    group: 'Behaviour',
    help: 'Whose server it acts as: its APIs, token fields, pause and abort.',
    default: 'vllm',
  },
  seed: {
    kind: 'integer',
    value: '<number>',
    min: Number.NEGATIVE_INFINITY,
    group: 'Behaviour',
    help:
      'Give equal requests equal replies. [default: none; a reply varies unless its request has a seed or a ' +
      'temperature of 0]',
  },
  skill: {
    kind: 'number',
    value: '<0..1>',
    group: 'Behaviour',
    help: 'How often a decision is right.',
    default: '1',
  },
  sloppiness: {
    kind: 'number',
    value: '<0..1>',
    group: 'Behaviour',
    help: 'How often a tool call is written wrongly.',
  },
  reasoning: { kind: 'switch', group: 'Behaviour', help: 'Think aloud in reasoning_content.' },
  contextLength: amount('Behaviour', 'Tokens of prompt and reply together; 0 for no limit.'),
  weightVersion: {
    kind: 'text',
    value: '<text>',
    group: 'Behaviour',
    help: 'The version that tokens are stamped with.',
  },
  routedExperts: {
    kind: 'text',
    value: '<layers>x<experts>',
    group: 'Behaviour',
    help: 'Return the experts of each token, as a mixture with so many layers and experts per token does.',
  },
  ttftMs: amount('Latency', 'Milliseconds to the first token.'),
  tokensPerSecond: amount('Latency', 'Speed of a reply; 0 for all at once.'),
  spread: amount('Latency', 'Relative standard deviation of both. [default: 0.2]'),
  maxConcurrent: amount('Latency', 'Requests at once; 429 above it. 0 for no limit.'),
  'faults.rateLimit': probability('Answer 429.'),
  'faults.serverError': probability('Answer 500.'),
  'faults.cut': probability('Stop in the middle of a reply.'),
  'faults.malformed': probability('Answer something that is not JSON.'),
  'faults.hang': probability('Never answer.'),
  'faults.kill': probability('Break the connection in the middle of a reply.'),
  'faults.quietEnd': probability('End in order in the middle of a reply.'),
  'faults.stall': probability('Begin a reply and say nothing more.'),
  'faults.midstreamError': probability('Report an error in the middle of a reply.'),
  'faults.slow': probability('Take ten times as long.'),
  'faults.trickle': probability('One token at a time, at least 50 ms each.'),
  retryAfterMs: amount('Faults', 'What a 429 tells the client to wait; 0 for nothing. [default: 100]'),
  'overload.afterMs': amount('Faults', 'Answer 503 to everything from so long after the start …'),
  'overload.forMs': amount('Faults', '… for so long.'),
  recordEmitted: {
    kind: 'integer',
    value: '<count>',
    group: 'Server',
    help: 'Remember so many replies as they left, for GET /sim/emitted. [default: none]',
  },
} as const satisfies FlagTable

export const simCommand = defineCommand({
  name: 'sim',
  description:
    'Serves the simulated model over HTTP, as vLLM, SGLang, OpenAI or Anthropic would: Chat Completions, Responses, ' +
    'Messages, streaming, tools, structured outputs, token ids and log-probabilities. It solves the example ' +
    'environments, needs no GPU and no key, and can be made as slow, as sloppy and as faulty as real backends are. ' +
    'Ends on Ctrl-C.',
  arguments: [],
  flags: {
    port: portFlag(defaultPort),
    host: {
      kind: 'text',
      value: '<address>',
      group: 'Server',
      help: 'The address to listen on.',
      default: '127.0.0.1',
    },
    'api-key': { kind: 'text', value: '<key>', group: 'Server', help: 'Ask clients for this key. [default: none]' },
    models: {
      kind: 'text',
      value: '<names>',
      group: 'Server',
      help: 'Serve only these, separated by commas. [default: any name]',
    },
    ...simulatorFlags,
  },
  examples: [
    { command: 'millrace sim', explanation: `listen on port ${defaultPort}` },
    {
      command: 'millrace sim --ttftMs=300 --tokensPerSecond=60 --skill=0.7',
      explanation: 'as slow as a real model, and wrong at times',
    },
    { command: 'millrace sim --faults.rateLimit=0.2 --faults.cut=0.05', explanation: 'a backend on a bad day' },
    {
      command: `millrace eval arithmetic -m sim-7b --base-url http://127.0.0.1:${defaultPort}/v1`,
      explanation: 'use it, from another terminal',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'ended by Ctrl-C or SIGTERM' },
    { code: exitCodes.usage, meaning: 'the command line is wrong, or the port is taken' },
  ],
  async run({ flags }, io) {
    // Loaded only now: the help of this command must not load an HTTP server.
    const { SimulatorServer } = await import('../../simulator/index.ts')
    const { port = defaultPort, host, 'api-key': apiKey, models } = flags
    const options = Object.fromEntries(Object.entries(flags).filter(([name]) => Object.hasOwn(simulatorFlags, name)))
    await using server = await SimulatorServer.start({
      seed: 'random',
      ...options,
      port,
      ...(host !== undefined && { host }),
      ...(apiKey !== undefined && { apiKey }),
      ...(models !== undefined && { models }),
    })
    const { style } = io.stdout
    void io.stdout.line(`the simulator listens on ${style.bold(server.url)}`)
    const isAnthropic = flags.imitate === 'anthropic'
    const key = apiKey === undefined ? '' : `${isAnthropic ? 'ANTHROPIC' : 'OPENAI'}_API_KEY=<key> `
    const [model = 'sim-7b'] = models?.split(',') ?? []
    const api = isAnthropic ? ' --api messages' : ''
    void io.stdout.line(
      `  ${style.accent(`${key}${io.program} eval arithmetic -m ${model} --base-url ${server.url}${api}`)}`,
    )
    void io.stdout.line(style.dim('Ctrl-C ends it'))
    await signalReceived(io)
    return exitCodes.ok
  },
})

function signalReceived({ events }: CommandIo): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      events.off('SIGINT', end)
      events.off('SIGTERM', end)
      resolve()
    }
    events.on('SIGINT', end)
    events.on('SIGTERM', end)
  })
}
