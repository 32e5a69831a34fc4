import { outcomeNames } from '../../../schema/index.ts'
import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

export const showFlags = {
  ...flagGroup('What to show', {
    outcome: flag.choice(
      [...outcomeNames, 'any'],
      `List the rollouts with this outcome: ${outcomeNames.join(', ')}, or any.`,
      { value: '<outcome>' },
    ),
    reward: flag.text(
      '<range>',
      'List the rollouts with this reward: 1, 0..0.5, 0.5.., ..0.5, "<1", or none for rollouts without a reward.',
    ),
    turns: flag.text('<range>', 'List the rollouts with this number of turns: 3, 10.., ..2.'),
    sort: flag.choice(
      ['reward', 'outcome', 'turns'],
      'List the rollouts by reward, outcome or turns, lowest first. [default: in the order they ended]',
      { value: '<what>' },
    ),
    reverse: flag.switch('With --sort: highest first.'),
    limit: flag.integer('<count>', 'Rollouts or sessions to list.', { min: 1, default: '20' }),
    json: flag.switch('As JSON: the summary, the listed rollouts, or the rollout or session.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'show',
  description:
    'Shows a run: its results so far, a list of its rollouts, filtered and sorted, or the transcript of a single rollout with ' +
    'every message, tool call, reward and attempt. Of a gateway: its newest sessions, or the transcript of one. Works while ' +
    'the run is in progress.',
  arguments: [
    runArgument,
    {
      name: 'rollout',
      required: false,
      help: 'a rollout to read, such as 12-0 (task 12, first attempt), a task with only one rollout, or a session of a gateway',
    },
  ],
  flags: showFlags,
  examples: {
    'millrace show nightly': 'the results of the run "nightly"',
    'millrace show nightly 12-0': 'the transcript of the first attempt at task 12',
    'millrace show nightly --outcome model_error': 'the rollouts that the backend failed',
    'millrace show latest --reward "<1" --sort turns --reverse':
      'the rollouts of the newest run that did not pass, the longest first',
    'millrace show gateway --limit 100': 'the newest sessions of the gateway',
    'millrace show nightly --json | jq .score': 'the score, for a script',
  },
  exitCodes: {
    ok: 'shown',
    failed: 'there is no such run, rollout or session, or it cannot be read',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-show.ts')).runShow(invocation, io),
})
