import type { ExitCode, exitCodes } from '../terminal/exit-codes.ts'
import type { CommandIo } from '../terminal/io.ts'
import type { FlagTable, FlagValues, PrefixSpec } from './flags.ts'

interface ArgumentSpec {
  readonly name: string
  readonly required: boolean
  /** A flag that takes its place, if it is required. */
  readonly unless?: string
  /** Of the last argument: there may be several. */
  readonly isList?: true
  readonly help: string
}

export interface Invocation<Flags extends FlagTable> {
  readonly arguments: readonly string[]
  readonly flags: FlagValues<Flags>
  /** The values by prefix, then by option; `--env.a.b=1` nests. Values that are JSON are parsed. */
  readonly prefixed: Readonly<Record<string, Readonly<Record<string, unknown>>>>
  readonly args: readonly string[]
  /** What the user should know about how the arguments were read. */
  readonly notices: readonly string[]
}

export interface Command<Flags extends FlagTable = FlagTable> {
  readonly name: string
  readonly description: string
  readonly arguments: readonly ArgumentSpec[]
  readonly flags: Flags
  readonly prefixes?: Readonly<Record<string, PrefixSpec>>
  readonly examples: Readonly<Record<string, string>>
  readonly exitCodes: Readonly<Partial<Record<keyof typeof exitCodes, string>>>
  /** Loads what the command needs only now. A method, so that a command with any flags is a `Command`. */
  run(invocation: Invocation<Flags>, io: CommandIo): Promise<ExitCode>
}

/** Defines a command whose `run` is typed by its table of flags. */
export function defineCommand<const Flags extends FlagTable>(command: Command<Flags>): Command<Flags> {
  return command
}

export const runArgument = {
  name: 'run',
  required: true,
  help: 'a run: its name, the path of its folder, or latest for the newest',
} as const satisfies ArgumentSpec
