import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, type PrefixSpec, runsFlag } from '../../command-line/flags.ts'

export const evalFlags = {
  ...flagGroup('Model', {
    model: flag.text(
      '<name>',
      'The policy: sim (the built-in simulator), a name from --models, or a model that the endpoint serves.',
      { short: 'm' },
    ),
    judge: flag.text(
      '<name>',
      'The judge model, named as for --model. Endpoint, prices and rates below apply to the policy, not to another judge. [default: the policy itself]',
    ),
    models: flag.text(
      '<file.json>',
      'Named models as JSON: { "name": { "backends": [{ "url": … }], "price": … }, … }.',
    ),
    'base-url': flag.text(
      '<url>',
      'The endpoint, up to and including /v1. [default: OPENAI_BASE_URL, or ANTHROPIC_BASE_URL with --api messages]',
    ),
    'api-key-env': flag.text(
      '<variable>',
      'The environment variable that holds the key. [default: OPENAI_API_KEY, or ANTHROPIC_API_KEY with --api messages]',
    ),
    api: flag.choice(
      ['chat', 'responses', 'messages'],
      'The API to speak to the endpoint: OpenAI’s Chat Completions or Responses, or Anthropic’s Messages.',
      { default: 'chat' },
    ),
    stream: flag.switch('Ask for streamed replies.'),
    'exact-tokens': flag.switch(
      'Write prompts as token ids and read replies from their ids, so that a later prompt holds exactly what was sampled. Keeps the tokens (--tokens). The server must take ids: vLLM, SGLang.',
    ),
    tokenizer: flag.text(
      '<folder>',
      'With --exact-tokens: the folder with tokenizer.json and the chat template of the model. [default: the folder that the server names]',
    ),
    'tool-format': flag.choice(
      ['native', 'mcp-xml', 'hermes', 'llama', 'pythonic'],
      'How the model writes tool calls, if its server does not parse them. [default: that of the environment, or native]',
    ),
    'price.input': flag.number(
      '<usd>',
      'US dollars per million input tokens; overrides the built-in table. Goes with --price.output.',
    ),
    'price.output': flag.number('<usd>', 'US dollars per million output tokens.'),
    rpm: flag.number('<count>', 'Maximum requests per minute.', { min: 1 }),
    tpm: flag.number('<count>', 'Maximum tokens per minute.', { min: 1 }),
    'max-wait': flag.duration(
      'How long one call may wait in total until a backend accepts it, for example while the backend is down. [default: as long as --wall-timeout allows]',
    ),
  }),
  ...flagGroup('Sampling', {
    temperature: flag.number('<number>', 'Sampling temperature.'),
    'top-p': flag.number('<number>', 'Nucleus sampling.'),
    'max-tokens': flag.integer('<count>', 'Maximum tokens per reply.', { min: 1 }),
    stop: flag.texts('<text>', 'End a reply at this text; may be repeated.'),
    'reasoning-effort': flag.text('<level>', 'How long a reasoning model thinks.'),
  }),
  ...flagGroup('What to run', {
    agent: flag.text(
      '<name>',
      'A built-in agent, such as refine or plan: docs/agents.md lists them. [default: that of the environment, or toolLoop]',
    ),
    attempts: flag.integer('<count>', 'Rollouts per task.', { short: 'n', min: 1, default: '1' }),
    concurrency: flag.integer('<count>', 'Rollouts at once.', { short: 'c', min: 1, default: '64' }),
    'judge-concurrency': flag.integer('<count>', 'Judge calls at once. [default: as --concurrency, 32 at most]', {
      min: 1,
    }),
    limit: flag.integer('<count>', 'Only the first tasks. [default: all]', { min: 1 }),
    seed: flag.integer('<number>', 'Makes a run repeatable, if the backend supports seeds.', {
      min: Number.NEGATIVE_INFINITY,
    }),
    tokens: flag.switch('Keep token ids and log-probabilities of every turn.'),
    'max-versions-behind': flag.integer(
      '<count>',
      'End rollouts as stale whose oldest tokens are more weight versions behind the newest. Needs --tokens. [default: any number]',
      { min: 0 },
    ),
    workers: flag.text(
      '<count|auto>',
      'Run rollouts in so many workers, one per core with auto. [default: on the main thread]',
    ),
    'worker-timeout': flag.duration(
      'Replace a worker that sends no heartbeat for this long, because something blocks it.',
      {
        default: '30s',
      },
    ),
    'max-worker-age': flag.duration('Replace a worker at this age; it finishes its rollouts first. [default: never]'),
    'max-worker-memory': flag.integer(
      '<MB>',
      'Replace a worker that uses more memory; it finishes its rollouts first. [default: never]',
      { min: 1 },
    ),
    'no-preflight': flag.switch('Skip the initial check of the model and the judge with one token.'),
    'pass-threshold': flag.number('<reward>', 'The lowest reward with which a rollout passes, for pass@k.', {
      min: Number.NEGATIVE_INFINITY,
      default: '1',
    }),
  }),
  ...flagGroup('Limits', {
    'max-turns': flag.integer('<count>', 'Model turns per rollout.', { min: 1, default: '50' }),
    'max-rollout-tokens': flag.integer('<count>', 'Tokens the model may write per rollout, all turns together.', {
      min: 1,
    }),
    'max-rollout-cost': flag.number('<usd>', 'US dollars per rollout.'),
    'max-cost': flag.number(
      '<usd>',
      'US dollars for the whole run; once spent, no new rollout starts. Needs a model with a known price.',
    ),
    timeout: flag.duration(
      'Working time per rollout: 90 (seconds), 90s, 5m, 1h. Waiting for a limit or a broken backend does not count.',
      { default: '30m' },
    ),
    'wall-timeout': flag.duration('Wall-clock time per rollout, waiting included.', { default: '6h' }),
    retries: flag.integer('<count>', 'How often a rollout may start over after an infrastructure failure.', {
      default: '2',
    }),
  }),
  ...flagGroup('The run', {
    run: flag.text('<name>', 'Name the run, or continue the run of that name.'),
    runs: runsFlag,
    resume: flag.optional(
      'name',
      'Continue an unfinished run, and fail if there is none. Without this flag the same command continues its own unfinished run, or starts one.',
    ),
    new: flag.switch('Start a new run, even if an unfinished run could be continued.'),
    'retry-failed': flag.switch(
      'Run again the rollouts without a score, in the run of that name, or in the newest run of this configuration.',
    ),
  }),
  ...flagGroup('Output', {
    json: flag.switch('One JSON object a line: start, rollout, progress, summary (the last).'),
    quiet: flag.switch('No progress, only the results.'),
  }),
} as const satisfies FlagTable

/** Flags of `eval` alone: a server has one of the same name. */
const gymFlags = flagGroup('NeMo Gym', {
  'nemo-gym': flag.texts(
    '<file.yaml|url>',
    'Run the rows of --input with a resources server of NeMo Gym, in place of an environment: a configuration, or the address of its head server. May be repeated.',
  ),
  input: flag.text('<file.jsonl>', 'The rows for --nemo-gym.', { short: 'i' }),
})

const gymPrefix = {
  value: '<option>=<value>',
  group: 'NeMo Gym',
  help: 'url: the address of the resources server, if the configuration has no port for it. agent: the agent of all rows. Anything else is a value of the configuration: <server>.resources_servers.<kind>.port=8000.',
} as const satisfies PrefixSpec

const ownFlags = { ...evalFlags, ...gymFlags } as const satisfies FlagTable
export type EvalFlags = typeof ownFlags

export const evalPrefixes = {
  sampling: {
    value: '<key>=<json>',
    group: 'Sampling',
    help: 'Added to the request unchanged, for fields that only one backend knows.',
  },
  env: {
    value: '<option>=<value>',
    group: 'What to run',
    help: 'An option of the environment. Valid JSON is parsed: 5 is a number, \'"5"\' is text.',
  },
  agent: {
    value: '<option>=<value>',
    group: 'What to run',
    help: 'An option of the agent that --agent names.',
  },
  sim: {
    value: '<option>=<value>',
    group: 'Model',
    help: 'An option of the simulator: skill, ttftMs, tokensPerSecond, faults.cut, … (millrace sim --help).',
  },
} as const satisfies Readonly<Record<string, PrefixSpec>>

export const command = defineCommand({
  name: 'eval',
  description:
    'Runs an environment against a model: every task, several attempts each, many at once; scores each rollout and ' +
    'prints the mean reward with its interval, pass@k and the outcome of every rollout. Everything is kept in a run ' +
    'folder as it happens. After a stop or a kill, the same command continues the run; Ctrl-C once lets running ' +
    'rollouts end, twice stops them.',
  arguments: [
    {
      name: 'environment',
      required: true,
      unless: 'nemo-gym',
      help: 'an environment: a module (./environment.ts, a package) or the name of an example (arithmetic)',
    },
  ],
  flags: ownFlags,
  prefixes: { ...evalPrefixes, 'nemo-gym': gymPrefix },
  examples: {
    'millrace eval arithmetic -m sim -n 4 --limit 75 --sim.skill=0.8': 'the built-in simulator: no key, no GPU',
    'millrace eval ./environment.ts -m gpt-4.1-mini -n 8 -c 256 --max-cost 5':
      'a model behind OPENAI_BASE_URL with OPENAI_API_KEY, for five dollars at most',
    'millrace eval ./environment.ts -m Qwen/Qwen3-8B --base-url http://localhost:8000/v1 --tokens':
      'your own vLLM, with token ids and log-probabilities for training',
    'millrace eval ./environment.ts -m gpt-4.1-mini --run nightly --retry-failed':
      'run again what ended without a score in the run "nightly"',
    'millrace eval --nemo-gym config.yaml -i data.jsonl --nemo-gym.url=http://127.0.0.1:8000 -m gpt-4.1-mini':
      'rows of NeMo Gym with a resources server of its own (docs/nemo-gym.md)',
  },
  exitCodes: {
    ok: 'every rollout has ended and has a score, whatever the score is',
    failed: 'the run could not start or could not go on',
    usage: 'the command line or a configuration is wrong; nothing was run',
    unscored: 'the run ended, but some rollouts have no score, tasks are missing, or --max-cost was spent',
    hungUp: 'its terminal was closed (SIGHUP); the same command continues',
    interrupted: 'interrupted by Ctrl-C; the same command continues',
    terminated: 'ended by SIGTERM; the same command continues',
  },
  run: async (invocation, io) => (await import('./run-eval.ts')).runEval(invocation, io),
})
