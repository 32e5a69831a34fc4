import type { FlagSpec, FlagTable } from './command.ts'

export const maxPort = 65_535

/** The port of a command that serves. */
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

/** What every command takes. */
export const commonFlags = {
  debug: { kind: 'switch', group: 'General', help: 'Show the stack trace of an error.' },
  help: { kind: 'switch', short: 'h', group: 'General', help: 'Show this help.' },
} as const satisfies FlagTable

/** Where runs are looked for, in every command that looks. */
export const runsFlag = {
  kind: 'text',
  value: '<folder>',
  group: 'Runs',
  help: 'Where runs are kept. [default: MILLRACE_RUNS, or runs]',
} as const satisfies FlagSpec
