import type { FlagTable, PrefixSpec } from './command.ts'

/** The flags of `millrace eval`, in the order its help shows them. */
export const evalFlags = {
  model: {
    kind: 'text',
    short: 'm',
    value: '<name>',
    group: 'Model',
    help: 'The policy: sim (the built-in simulator), a name from --models, or one that the endpoint serves.',
  },
  judge: {
    kind: 'text',
    value: '<name>',
    group: 'Model',
    help: 'The model that judges, named as for --model. [default: the policy itself]',
  },
  models: {
    kind: 'text',
    value: '<file.json>',
    group: 'Model',
    help: 'Named models as JSON: { "name": { "backends": [{ "url": … }], "price": … }, … }.',
  },
  'base-url': {
    kind: 'text',
    value: '<url>',
    group: 'Model',
    help: 'The OpenAI-compatible endpoint, up to and including /v1. [default: OPENAI_BASE_URL]',
  },
  'api-key-env': {
    kind: 'text',
    value: '<variable>',
    group: 'Model',
    help: 'The environment variable that holds the key.',
    default: 'OPENAI_API_KEY',
  },
  api: {
    kind: 'choice',
    choices: ['chat', 'responses'],
    group: 'Model',
    help: 'The API to speak to the endpoint.',
    default: 'chat',
  },
  stream: { kind: 'switch', group: 'Model', help: 'Ask for streamed replies.' },
  'price.input': {
    kind: 'number',
    value: '<usd>',
    group: 'Model',
    help: 'US dollars per million input tokens; overrides the built-in table. Goes with --price.output.',
  },
  'price.output': { kind: 'number', value: '<usd>', group: 'Model', help: 'US dollars per million output tokens.' },
  rpm: { kind: 'number', value: '<count>', min: 1, group: 'Model', help: 'Requests per minute, at most.' },
  tpm: { kind: 'number', value: '<count>', min: 1, group: 'Model', help: 'Tokens per minute, at most.' },

  temperature: { kind: 'number', value: '<number>', group: 'Sampling', help: 'Sampling temperature.' },
  'top-p': { kind: 'number', value: '<number>', group: 'Sampling', help: 'Nucleus sampling.' },
  'max-tokens': { kind: 'integer', value: '<count>', min: 1, group: 'Sampling', help: 'Tokens per reply, at most.' },
  stop: { kind: 'texts', value: '<text>', group: 'Sampling', help: 'End a reply at this text; may be repeated.' },
  'reasoning-effort': { kind: 'text', value: '<level>', group: 'Sampling', help: 'How long a reasoning model thinks.' },

  attempts: {
    kind: 'integer',
    short: 'n',
    value: '<count>',
    min: 1,
    group: 'What to run',
    help: 'Rollouts per task.',
    default: '1',
  },
  concurrency: {
    kind: 'integer',
    short: 'c',
    value: '<count>',
    min: 1,
    group: 'What to run',
    help: 'Rollouts at once.',
    default: '64',
  },
  'judge-concurrency': {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'What to run',
    help: 'Judge calls at once. [default: as --concurrency, 32 at most]',
  },
  limit: {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'What to run',
    help: 'Only the first tasks. [default: all]',
  },
  seed: {
    kind: 'integer',
    value: '<number>',
    min: Number.NEGATIVE_INFINITY,
    group: 'What to run',
    help: 'Makes a run repeatable, as far as the backend honours it.',
  },
  tokens: { kind: 'switch', group: 'What to run', help: 'Keep token ids and log-probabilities of every turn.' },
  workers: {
    kind: 'text',
    value: '<count|auto>',
    group: 'What to run',
    help: 'Run rollouts in so many workers, one per core with auto. [default: on the main thread]',
  },
  'no-preflight': {
    kind: 'switch',
    group: 'What to run',
    help: 'Do not ask the model for one token before anything else.',
  },
  'pass-threshold': {
    kind: 'number',
    value: '<reward>',
    min: Number.NEGATIVE_INFINITY,
    group: 'What to run',
    help: 'The reward from which a rollout passes, for pass@k.',
    default: '1',
  },

  'max-turns': {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'Limits',
    help: 'Model turns per rollout.',
    default: '50',
  },
  'max-rollout-tokens': {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'Limits',
    help: 'Tokens the model may write per rollout, all turns together.',
  },
  'max-rollout-cost': { kind: 'number', value: '<usd>', group: 'Limits', help: 'US dollars per rollout.' },
  'max-cost': {
    kind: 'number',
    value: '<usd>',
    group: 'Limits',
    help: 'US dollars for the whole run; once spent, nothing new starts. Needs a model whose price is known.',
  },
  timeout: {
    kind: 'duration',
    value: '<duration>',
    group: 'Limits',
    help: 'Working time per rollout: 90 (seconds), 90s, 5m, 1h. Waiting for a limit or a broken backend does not count.',
    default: '30m',
  },
  'wall-timeout': {
    kind: 'duration',
    value: '<duration>',
    group: 'Limits',
    help: 'Time per rollout by the clock on the wall, waiting included.',
    default: '6h',
  },
  retries: {
    kind: 'integer',
    value: '<count>',
    group: 'Limits',
    help: 'How often a rollout may start over after the infrastructure failed it.',
    default: '2',
  },

  run: { kind: 'text', value: '<name>', group: 'The run', help: 'Name the run, or continue the run of that name.' },
  runs: {
    kind: 'text',
    value: '<folder>',
    group: 'The run',
    help: 'Where runs are kept. [default: MILLRACE_RUNS, or runs]',
  },
  resume: {
    kind: 'optional',
    value: 'name',
    group: 'The run',
    help: 'Continue an unfinished run, and fail if there is none. Without this flag the same command continues its own unfinished run, or starts one.',
  },
  new: { kind: 'switch', group: 'The run', help: 'Start a new run, also where one could be continued.' },
  'retry-failed': {
    kind: 'switch',
    group: 'The run',
    help: 'Run again what ended without a score, in the run of that name, or in the newest of this configuration.',
  },

  json: {
    kind: 'switch',
    group: 'Output',
    help: 'One JSON object a line: start, rollout, progress, summary (the last).',
  },
  quiet: { kind: 'switch', group: 'Output', help: 'No progress, only the results.' },
} as const satisfies FlagTable

export const evalPrefixes = {
  sampling: {
    value: '<key>=<json>',
    group: 'Sampling',
    help: 'Put into the request as it is, for what only one backend knows.',
  },
  env: {
    value: '<option>=<value>',
    group: 'What to run',
    help: 'An option of the environment. What reads as JSON is taken as JSON: 5 is a number, \'"5"\' is text.',
  },
  sim: {
    value: '<option>=<value>',
    group: 'Model',
    help: 'An option of the simulator: skill, ttftMs, tokensPerSecond, faults.cut, … (millrace sim --help).',
  },
} as const satisfies Readonly<Record<string, PrefixSpec>>
