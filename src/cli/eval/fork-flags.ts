import type { FlagTable, PrefixSpec } from '../command-line/command.ts'
import { storedOptionPrefix } from '../command-line/common-flags.ts'
import { evalFlags, evalPrefixes } from './eval-flags.ts'

const { model, models, api, stream, rpm, tpm, concurrency, run, runs, json, quiet } = evalFlags

/** The flags of `millrace fork`; flags that `eval` also has mean the same. */
export const forkFlags = {
  turn: {
    kind: 'integer',
    value: '<count>',
    group: 'Where to fork',
    help: 'Turns to repeat from the recording, with the answers to their tool calls; the next one is asked for. 0 repeats none.',
  },
  system: {
    kind: 'text',
    value: '<text>',
    group: 'Where to fork',
    help: 'Say this in place of the system message, or before everything if there was none.',
  },
  prompt: {
    kind: 'text',
    value: '<text>',
    group: 'Where to fork',
    help: 'Say this in place of the first user message.',
  },
  'reuse-tools': {
    kind: 'switch',
    group: 'Where to fork',
    help: 'Take recorded answers for enough of tools that do not say that their calls can be repeated.',
  },
  environment: {
    kind: 'text',
    value: '<module>',
    group: 'Where to fork',
    help: 'The environment, if it is not where it was when the run was made.',
  },
  samples: {
    kind: 'integer',
    short: 'n',
    value: '<count>',
    min: 1,
    group: 'Where to fork',
    help: 'How often to go on from there.',
    default: '1',
  },
  model: { ...model, help: `Who goes on. ${model.help} [default: the model that made the rollout]` },
  models,
  'base-url': evalFlags['base-url'],
  'api-key-env': evalFlags['api-key-env'],
  api,
  stream,
  'price.input': evalFlags['price.input'],
  'price.output': evalFlags['price.output'],
  rpm,
  tpm,
  'max-wait': evalFlags['max-wait'],
  concurrency,
  'no-preflight': evalFlags['no-preflight'],
  run,
  runs,
  new: evalFlags.new,
  'retry-failed': evalFlags['retry-failed'],
  json,
  quiet,
} as const satisfies FlagTable

export const forkPrefixes = {
  env: { ...storedOptionPrefix, group: 'Where to fork' },
  sim: evalPrefixes.sim,
} as const satisfies Readonly<Record<string, PrefixSpec>>
