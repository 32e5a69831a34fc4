import type { FlagSpec, FlagTable } from './command.ts'

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
