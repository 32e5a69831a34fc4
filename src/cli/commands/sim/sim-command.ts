import type { ImitationName, SimulatorSettings } from '../../../simulator/index.ts'
import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, definedFields, portFlag, type FlagTable } from '../../command-line/flags.ts'
import { exitCodes } from '../../terminal/exit-codes.ts'

const defaultPort = 8765

const probability = (help: string) => flag.number('<0..1>', help)
const amount = (help: string) => flag.number('<number>', help)

/** The flags have the names of the simulator's options, so that `--skill` here is `--sim.skill` of `eval`. */
const simulatorFlags = {
  ...flagGroup('Behaviour', {
    imitate: flag.choice(
      ['vllm', 'sglang', 'openai', 'anthropic', 'millrace'] satisfies readonly ImitationName[],
      'The server to imitate: its APIs, token fields, pause and abort.',
      { default: 'vllm' },
    ),
    seed: flag.integer(
      '<number>',
      'Give equal requests equal replies. [default: none; a reply varies unless its request has a seed or a ' +
        'temperature of 0]',
      { min: Number.NEGATIVE_INFINITY },
    ),
    skill: flag.number('<0..1>', 'How often a decision is right.', { default: '1' }),
    sloppiness: flag.number('<0..1>', 'How often a tool call is written wrongly.'),
    reasoning: flag.switch('Think aloud in reasoning_content.'),
    contextLength: amount('Tokens of prompt and reply together; 0 for no limit.'),
    weightVersion: flag.text('<text>', 'The version that tokens are stamped with.'),
    tokens: flag.choice(
      ['words', 'lossy'] satisfies readonly SimulatorSettings['tokens'][],
      'Made up from words, or those of a real tokenizer, sampled in other pieces than it would make.',
      { default: 'words' },
    ),
    routedExperts: flag.text(
      '<layers>x<experts>',
      'Return the experts of each token, like a mixture of experts with this many layers and experts per token.',
    ),
  }),
  ...flagGroup('Latency', {
    ttftMs: amount('Milliseconds to the first token.'),
    tokensPerSecond: amount('Speed of a reply; 0 for all at once.'),
    spread: amount('Relative standard deviation of both. [default: 0.2]'),
    maxConcurrent: amount('Requests at once; 429 above it. 0 for no limit.'),
  }),
  ...flagGroup('Faults', {
    'faults.rateLimit': probability('Answer 429.'),
    'faults.serverError': probability('Answer 500.'),
    'faults.cut': probability('Stop in the middle of a reply.'),
    'faults.malformed': probability('Answer something that is not JSON.'),
    'faults.hang': probability('Never answer.'),
    'faults.kill': probability('Break the connection in the middle of a reply.'),
    'faults.quietEnd': probability('End the stream regularly in the middle of a reply.'),
    'faults.stall': probability('Begin a reply and send nothing more.'),
    'faults.midstreamError': probability('Report an error in the middle of a reply.'),
    'faults.slow': probability('Take ten times as long.'),
    'faults.trickle': probability('One token at a time, at least 50 ms each.'),
    retryAfterMs: amount('The wait that a 429 announces to the client; 0 to announce none. [default: 100]'),
    'overload.afterMs': amount('Answer every request with 503, beginning this long after the start.'),
    'overload.forMs': amount('How long these 503 answers last.'),
  }),
  ...flagGroup('Server', {
    recordEmitted: flag.integer('<count>', 'Keep this many sent replies for GET /sim/emitted. [default: none]'),
  }),
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'sim',
  description:
    'Serves the simulated model over HTTP, as vLLM, SGLang, OpenAI or Anthropic would: Chat Completions, Responses, ' +
    'Messages, streaming, tools, structured outputs, token ids and log-probabilities. It solves the example ' +
    'environments, needs no GPU and no key, and can be made as slow, as sloppy and as faulty as real backends are. ' +
    'Ends on Ctrl-C.',
  arguments: [],
  flags: {
    ...flagGroup('Server', {
      port: portFlag(defaultPort),
      host: flag.text('<address>', 'The address to listen on.', { default: '127.0.0.1' }),
      'api-key': flag.text('<key>', 'Ask clients for this key. [default: none]'),
      models: flag.text('<names>', 'Serve only these, separated by commas. [default: any name]'),
    }),
    ...simulatorFlags,
  },
  examples: {
    'millrace sim': `listen on port ${defaultPort}`,
    'millrace sim --ttftMs=300 --tokensPerSecond=60 --skill=0.7': 'as slow as a real model, and wrong at times',
    'millrace sim --faults.rateLimit=0.2 --faults.cut=0.05': 'a backend on a bad day',
    [`millrace eval arithmetic -m sim-7b --base-url http://127.0.0.1:${defaultPort}/v1`]:
      'use it, from another terminal',
  },
  exitCodes: {
    ok: 'ended by Ctrl-C or SIGTERM',
    usage: 'the command line is wrong, or the port is taken',
  },
  async run({ flags }, io) {
    // Loaded only now: the help of this command must not load an HTTP server.
    const { SimulatorServer } = await import('../../../simulator/index.ts')
    const { listen } = await import('../../terminal/signals.ts')
    const { port = defaultPort, host, 'api-key': apiKey, models } = flags
    const options = Object.fromEntries(Object.entries(flags).filter(([name]) => Object.hasOwn(simulatorFlags, name)))
    const server = definedFields({ host, apiKey, models })
    await using simulator = await SimulatorServer.start({ seed: 'random', ...options, port, ...server })
    const { style } = io.stdout
    void io.stdout.line(`the simulator listens on ${style.bold(simulator.url)}`)
    const isAnthropic = flags.imitate === 'anthropic'
    const key = apiKey === undefined ? '' : `${isAnthropic ? 'ANTHROPIC' : 'OPENAI'}_API_KEY=<key> `
    const [model = 'sim-7b'] = models?.split(',') ?? []
    const api = isAnthropic ? ' --api messages' : ''
    void io.stdout.line(
      `  ${style.accent(`${key}${io.program} eval arithmetic -m ${model} --base-url ${simulator.url}${api}`)}`,
    )
    void io.stdout.line(style.dim('Ctrl-C ends it'))
    const { promise, resolve } = Promise.withResolvers()
    using _signals = listen(io.events, { SIGINT: resolve, SIGTERM: resolve })
    await promise
    return exitCodes.ok
  },
})
