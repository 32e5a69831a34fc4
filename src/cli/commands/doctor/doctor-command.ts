import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

export const doctorFlags = {
  ...flagGroup('What to show', {
    json: flag.switch('As one JSON object.'),
  }),
  ...flagGroup('A model', {
    model: flag.text('<name>', 'Show whether the tokens of this model can be exact, and what its chat template does.', {
      short: 'm',
    }),
    'base-url': flag.text('<url>', 'The endpoint of the model, up to and including /v1. [default: OPENAI_BASE_URL]'),
    'api-key-env': flag.text('<variable>', 'The environment variable that holds its key. [default: OPENAI_API_KEY]'),
    models: flag.text('<file>', 'A JSON file with named models, as for millrace eval.'),
    tokenizer: flag.text(
      '<folder>',
      'The folder with tokenizer.json and the chat template. [default: the folder that the server names]',
    ),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'doctor',
  description:
    'Shows the resources of this machine and the limits of a run on it. Given a run, shows what slowed it down: functions ' +
    'of the environment that blocked a loop, limits that moved, and failures that the policy did not cause. With --model, ' +
    'shows whether the tokens of a model can be exact.',
  arguments: [{ ...runArgument, required: false }],
  flags: doctorFlags,
  examples: {
    'millrace doctor': 'processors, memory, open files, disk and timers',
    'millrace doctor nightly': 'what slowed down the run "nightly"',
    'millrace doctor -m Qwen/Qwen3-8B --base-url http://localhost:8000/v1 --tokenizer ./Qwen3-8B':
      'how the chat template writes later turns, and whether the server takes token ids',
    [`millrace doctor nightly --json | jq '.blocked[].blockedBy'`]: 'the functions to look at',
  },
  exitCodes: {
    ok: 'shown, with or without warnings',
    failed: 'there is no such run, or it cannot be read',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-doctor.ts')).runDoctor(invocation, io),
})
