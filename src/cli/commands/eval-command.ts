import type { Evaluate } from '../eval/carry-out-eval.ts'
import { defineCommand, type Command } from '../command-line/command.ts'
import { evalFlags, evalPrefixes } from '../eval/eval-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

/** `millrace eval` over any implementation of `evaluate`. */
export function createEvalCommand(load: () => Promise<Evaluate>): Command<typeof evalFlags> {
  return defineCommand({
    name: 'eval',
    description:
      'Runs an environment against a model: every task, several attempts each, many at once; scores each rollout and ' +
      'prints the mean reward with its interval, pass@k and what became of every rollout. Everything is kept in a run ' +
      'folder as it happens. Stopped or killed, the same command continues where it was; Ctrl-C once lets running ' +
      'rollouts end, twice stops them.',
    arguments: [
      {
        name: 'environment',
        required: true,
        help: 'an environment: a module (./environment.ts, a package) or the name of an example (arithmetic)',
      },
    ],
    flags: evalFlags,
    prefixes: evalPrefixes,
    examples: [
      {
        command: 'millrace eval arithmetic -m sim -n 4 --limit 75 --sim.skill=0.8',
        explanation: 'the built-in simulator: no key, no GPU',
      },
      {
        command: 'millrace eval ./environment.ts -m gpt-4.1-mini -n 8 -c 256 --max-cost 5',
        explanation: 'a model behind OPENAI_BASE_URL with OPENAI_API_KEY, for five dollars at most',
      },
      {
        command: 'millrace eval ./environment.ts -m Qwen/Qwen3-8B --base-url http://localhost:8000/v1 --tokens',
        explanation: 'your own vLLM, with token ids and log-probabilities for training',
      },
      {
        command: 'millrace eval ./environment.ts -m gpt-4.1-mini --run nightly --retry-failed',
        explanation: 'run again what ended without a score in the run "nightly"',
      },
    ],
    exitCodes: [
      { code: exitCodes.ok, meaning: 'every rollout has ended and has a score, whatever the score is' },
      { code: exitCodes.failed, meaning: 'the run could not start or could not go on' },
      { code: exitCodes.usage, meaning: 'the command line or a configuration is wrong; nothing was run' },
      {
        code: exitCodes.unscored,
        meaning: 'the run ended, but some rollouts have no score, tasks are gone, or --max-cost was spent',
      },
      { code: exitCodes.hungUp, meaning: 'its terminal was closed (SIGHUP); the same command continues' },
      { code: exitCodes.interrupted, meaning: 'interrupted by Ctrl-C; the same command continues' },
      { code: exitCodes.terminated, meaning: 'ended by SIGTERM; the same command continues' },
    ],
    async run(invocation, io) {
      // Loaded only now: the help of this command must not load a database and an HTTP client.
      const { carryOutEval } = await import('../eval/carry-out-eval.ts')
      return await carryOutEval(invocation, io, await load())
    },
  })
}

export const evalCommand = createEvalCommand(async () => (await import('../../eval/index.ts')).evaluate)
