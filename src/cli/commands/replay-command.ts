import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runArgument, runsFlag, storedOptionPrefix } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const replayFlags = {
  all: { kind: 'switch', group: 'What to replay', help: 'Every rollout of the run that has ended.' },
  environment: {
    kind: 'text',
    value: '<module>',
    group: 'What to replay',
    help: 'The environment, if it is not where it was when the run was made.',
  },
  limit: {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'Output',
    help: 'With --all: how many that differ are shown.',
    default: '5',
  },
  json: {
    kind: 'switch',
    group: 'Output',
    help: 'One JSON object a line for each rollout; with --all a summary last.',
  },
  runs: runsFlag,
} as const satisfies FlagTable

export const replayCommand = defineCommand({
  name: 'replay',
  description:
    'Runs a stored rollout again against its own recording and compares the two, message for message: the agent, updates, ' +
    'children and rewards run, and everything they hear from outside is what was recorded. No model, no judge, no tool ' +
    'server is asked; of the environment’s own tools only those run that rebuild its state (resume: rerun). What is asked ' +
    'for and was not recorded is a difference, never a call.',
  arguments: [
    runArgument,
    {
      name: 'rollout',
      required: false,
      help: 'the rollout, such as 12-0 (task 12, first attempt), or a task that has one alone',
    },
  ],
  flags: replayFlags,
  prefixes: { env: { ...storedOptionPrefix, group: 'What to replay' } },
  examples: [
    {
      command: 'millrace replay nightly 12-0',
      explanation: 'whether the rollout comes to the same again, and if not, where',
    },
    {
      command: 'millrace replay nightly --all',
      explanation: 'the same for the whole run, after a change to the environment',
    },
    {
      command: 'millrace replay nightly --all --json | jq \'select(.verdict == "different") | .rollout\'',
      explanation: 'which ones differ',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'what was replayed is identical' },
    {
      code: exitCodes.failed,
      meaning: 'something differs or is damaged, or there is no such run or rollout, or it cannot be replayed',
    },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutReplay } = await import('../runs/carry-out-replay.ts')
    return await carryOutReplay(invocation, io)
  },
})
