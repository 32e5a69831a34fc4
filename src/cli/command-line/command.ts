import type { ExitCode } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'

/**
 * The kind of a flag. `switch` takes no value. `optional` takes the next word as its value, if that is no flag and the
 * command already has its arguments. `texts` may be given several times. `duration` is in milliseconds once parsed.
 */
export type FlagKind = 'switch' | 'text' | 'texts' | 'optional' | 'number' | 'integer' | 'duration' | 'choice'

export interface FlagSpec {
  readonly kind: FlagKind
  readonly short?: string
  /** The name of the value in the help: `<name>`. */
  readonly value?: string
  readonly choices?: readonly string[]
  /** The least value of numbers and integers; 0 if not given. */
  readonly min?: number
  /** The largest value of numbers and integers. */
  readonly max?: number
  /** The default as the help shows it. */
  readonly default?: string
  readonly group: string
  readonly help: string
}

export type FlagTable = Readonly<Record<string, FlagSpec>>

/** A family of flags whose names only the environment or the backend knows: `--env.<option>`. */
export interface PrefixSpec {
  readonly value: string
  readonly group: string
  readonly help: string
}

export interface ArgumentSpec {
  readonly name: string
  readonly required: boolean
  readonly help: string
}

type FlagValue<Spec extends FlagSpec> = Spec['kind'] extends 'switch'
  ? true
  : Spec['kind'] extends 'number' | 'integer' | 'duration'
    ? number
    : Spec['kind'] extends 'texts'
      ? readonly string[]
      : Spec['kind'] extends 'choice'
        ? NonNullable<Spec['choices']>[number]
        : string

/** Flags that were not given are absent. An `optional` flag without a value is the empty string. */
export type FlagValues<Flags extends FlagTable> = { readonly [Name in keyof Flags]?: FlagValue<Flags[Name]> }

export interface Invocation<Flags extends FlagTable> {
  readonly arguments: readonly string[]
  readonly flags: FlagValues<Flags>
  /** The values by prefix, then by option; `--env.a.b=1` nests. Values that are JSON are parsed. */
  readonly prefixed: Readonly<Record<string, Readonly<Record<string, unknown>>>>
  /** The words after the command's name, as they were given. */
  readonly words: readonly string[]
  /** What the user should know about how the words were read. */
  readonly notices: readonly string[]
}

/** One command of the command line: its help, and what it does. */
export interface Command<Flags extends FlagTable = FlagTable> {
  readonly name: string
  /** One paragraph for the help. */
  readonly description: string
  readonly arguments: readonly ArgumentSpec[]
  readonly flags: Flags
  readonly prefixes?: Readonly<Record<string, PrefixSpec>>
  readonly examples: readonly { readonly command: string; readonly explanation: string }[]
  readonly exitCodes: readonly { readonly code: ExitCode; readonly meaning: string }[]
  // Declared as a method, so that a command with any flags is a `Command`.
  run(invocation: Invocation<Flags>, io: CommandIo): Promise<ExitCode>
}

/** Defines a command whose `run` is typed by its table of flags. */
export function defineCommand<const Flags extends FlagTable>(command: Command<Flags>): Command<Flags> {
  return command
}
