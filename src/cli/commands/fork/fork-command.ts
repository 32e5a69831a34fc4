import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, type PrefixSpec, storedOptionPrefix } from '../../command-line/flags.ts'
import { evalFlags, evalPrefixes } from '../eval/eval-command.ts'

const { model, models, api, stream, rpm, tpm, concurrency, run, runs, json, quiet } = evalFlags

/** The flags of `millrace fork`; flags that `eval` also has mean the same. */
export const forkFlags = {
  ...flagGroup('Where to fork', {
    turn: flag.integer(
      '<count>',
      'Turns to repeat from the recording, with the answers to their tool calls; the model makes the next turn. 0 repeats no turn.',
    ),
    system: flag.text(
      '<text>',
      'Replace the system message with this text, or add one if the rollout had no system message.',
    ),
    prompt: flag.text('<text>', 'Replace the first user message with this text.'),
    'reuse-tools': flag.switch(
      'Accept the recorded answers of tools that do not declare their calls repeatable (`resume`).',
    ),
    environment: flag.text('<module>', 'The environment, if it has moved since the run was made.'),
    samples: flag.integer('<count>', 'How many rollouts continue from there.', { short: 'n', min: 1, default: '1' }),
  }),
  model: { ...model, help: `The model that continues. ${model.help} [default: the model that made the rollout]` },
  models,
  'base-url': evalFlags['base-url'],
  'api-key-env': evalFlags['api-key-env'],
  api,
  stream,
  'exact-tokens': evalFlags['exact-tokens'],
  tokenizer: evalFlags.tokenizer,
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

export const command = defineCommand({
  name: 'fork',
  description:
    'Starts a new run that repeats a stored rollout up to one of its turns and continues from there, with another model, another ' +
    'prompt, or unchanged. The first turns come from the recording, even if the prompt has changed; tools that ' +
    'rebuild state run again and must answer as before. The new run holds the whole conversation, names its origin in its run.json, ' +
    'and can be shown, continued and replayed like any other run.',
  arguments: [
    runArgument,
    {
      name: 'rollout',
      required: true,
      help: 'the rollout to fork, such as 12-0 (task 12, first attempt), or a task with only one rollout',
    },
  ],
  flags: forkFlags,
  prefixes: forkPrefixes,
  examples: {
    'millrace fork nightly 12-0 --turn 3 -n 8': 'eight more continuations after the third turn',
    'millrace fork nightly 12-0 --turn 3 -m gpt-4.1 --run better-model':
      'another model continues after the same three turns',
    "millrace fork nightly 12-0 --turn 0 --system 'Work step by step.'": 'the same task with another system message',
  },
  exitCodes: {
    ok: 'every rollout has ended and has a score, whatever the score is',
    failed: 'there is no such run or rollout, or the new one could not start or go on',
    usage: 'the command line is wrong, or the rollout cannot be forked there; nothing was run',
    unscored: 'the run ended, but some rollouts have no score',
    hungUp: 'its terminal was closed (SIGHUP); the same command continues',
    interrupted: 'interrupted by Ctrl-C; the same command continues',
    terminated: 'ended by SIGTERM; the same command continues',
  },
  run: async (invocation, io) => (await import('./run-fork.ts')).runFork(invocation, io),
})
