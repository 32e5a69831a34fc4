import { defineCommand } from '../command-line/command.ts'
import { runArgument } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { forkFlags, forkPrefixes } from '../eval/fork-flags.ts'

export const forkCommand = defineCommand({
  name: 'fork',
  description:
    'Starts a new run that begins as a stored rollout did and goes on from one of its turns, with another model, another ' +
    'prompt or simply once more. The first turns are repeated from the recording, whatever the prompt says now; tools that ' +
    'rebuild state run again and must answer as before. The new run holds the whole conversation, says in its run.json ' +
    'what it was forked from, and can be shown, continued and replayed like any other.',
  arguments: [
    runArgument,
    {
      name: 'rollout',
      required: true,
      help: 'the rollout to fork, such as 12-0 (task 12, first attempt), or a task that has one alone',
    },
  ],
  flags: forkFlags,
  prefixes: forkPrefixes,
  examples: [
    {
      command: 'millrace fork nightly 12-0 --turn 3 -n 8',
      explanation: 'eight more ways to go on after the third turn',
    },
    {
      command: 'millrace fork nightly 12-0 --turn 3 -m gpt-4.1 --run better-model',
      explanation: 'what another model makes of the same three turns',
    },
    {
      command: "millrace fork nightly 12-0 --turn 0 --system 'Work step by step.'",
      explanation: 'the same task with other words',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'every rollout has ended and has a score, whatever the score is' },
    { code: exitCodes.failed, meaning: 'there is no such run or rollout, or the new one could not start or go on' },
    {
      code: exitCodes.usage,
      meaning: 'the command line is wrong, or the rollout cannot be forked there; nothing was run',
    },
    { code: exitCodes.unscored, meaning: 'the run ended, but some rollouts have no score' },
    { code: exitCodes.hungUp, meaning: 'its terminal was closed (SIGHUP); the same command continues' },
    { code: exitCodes.interrupted, meaning: 'interrupted by Ctrl-C; the same command continues' },
    { code: exitCodes.terminated, meaning: 'ended by SIGTERM; the same command continues' },
  ],
  async run(invocation, io) {
    const { carryOutFork } = await import('../eval/carry-out-fork.ts')
    return await carryOutFork(invocation, io)
  },
})
