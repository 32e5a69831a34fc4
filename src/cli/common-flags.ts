import type { FlagTable } from './command.ts'

/** What every command takes. */
export const commonFlags = {
  debug: { kind: 'switch', group: 'General', help: 'Show the stack trace of an error.' },
  help: { kind: 'switch', short: 'h', group: 'General', help: 'Show this help.' },
} as const satisfies FlagTable
