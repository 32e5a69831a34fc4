import type { ArgumentSpec, FlagSpec, FlagTable, PrefixSpec } from './command.ts'

export const maxPort = 65_535

/** The port flag of a command that serves. */
export function portFlag(defaultPort: number) {
  const help = 'The port; 0 for any free one.'
  return {
    kind: 'integer',
    value: '<number>',
    max: maxPort,
    group: 'Server',
    help,
    default: String(defaultPort),
  } as const
}

/** The flags that every command takes. */
export const commonFlags = {
  debug: { kind: 'switch', group: 'General', help: 'Show the stack trace of an error.' },
  help: { kind: 'switch', short: 'h', group: 'General', help: 'Show this help.' },
} as const satisfies FlagTable

/** The folder of runs, for every command that reads or makes runs. */
export const runsFlag = {
  kind: 'text',
  value: '<folder>',
  group: 'Runs',
  help: 'Where runs are kept. [default: MILLRACE_RUNS, or runs]',
} as const satisfies FlagSpec

/** The flags for options of a stored run's environment, for every command that runs it again. */
export const storedOptionPrefix = {
  value: '<option>=<value>',
  group: 'What to run',
  help: 'An option of the environment that is not as the run had it, or was not stored with it since it is a secret.',
} as const satisfies PrefixSpec

/** The run that a command reads. */
export const runArgument = {
  name: 'run',
  required: true,
  help: 'a run: its name, the path of its folder, or latest for the newest',
} as const satisfies ArgumentSpec
