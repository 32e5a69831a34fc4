/**
 * The kind of a flag. `switch` takes no value. `optional` takes the next word as its value, if that is no flag and the
 * command already has its arguments. `texts` may be given several times. `duration` is in milliseconds once parsed.
 */
export type FlagKind = 'switch' | 'text' | 'texts' | 'optional' | 'number' | 'integer' | 'duration' | 'choice'

export interface FlagSpec {
  readonly kind: FlagKind
  readonly short?: string
  readonly value?: string
  readonly choices?: readonly string[]
  /** Of numbers and integers; 0 if not given. */
  readonly min?: number
  readonly max?: number
  readonly default?: string
  readonly group: string
  readonly help: string
}

export type FlagTable = Readonly<Record<string, FlagSpec>>

/** A group of flags whose names only the environment or the backend knows: `--env.<option>`. */
export interface PrefixSpec {
  readonly value: string
  readonly group: string
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

type More = Pick<FlagSpec, 'short' | 'default' | 'value'>
type Range = More & Pick<FlagSpec, 'min' | 'max'>

/** One flag of each kind, to be put into its group with `flagGroup`. */
export const flag = {
  switch: (help: string, more: More = {}) => ({ kind: 'switch', help, ...more }) as const,
  text: (value: string, help: string, more: More = {}) => ({ kind: 'text', value, help, ...more }) as const,
  texts: (value: string, help: string, more: More = {}) => ({ kind: 'texts', value, help, ...more }) as const,
  optional: (value: string, help: string, more: More = {}) => ({ kind: 'optional', value, help, ...more }) as const,
  number: (value: string, help: string, more: Range = {}) => ({ kind: 'number', value, help, ...more }) as const,
  integer: (value: string, help: string, more: Range = {}) => ({ kind: 'integer', value, help, ...more }) as const,
  duration: (help: string, more: More = {}) => ({ kind: 'duration', value: '<duration>', help, ...more }) as const,
  choice: <const Choices extends readonly string[]>(choices: Choices, help: string, more: More = {}) =>
    ({ kind: 'choice', choices, help, ...more }) as const,
} as const

export function flagGroup<const Flags extends Readonly<Record<string, Omit<FlagSpec, 'group'>>>>(
  group: string,
  flags: Flags,
): { readonly [Name in keyof Flags]: Flags[Name] & { readonly group: string } } {
  const grouped = Object.entries(flags).map(([name, spec]) => [name, { ...spec, group }])
  return Object.fromEntries(grouped) as ReturnType<typeof flagGroup<Flags>>
}

/** The fields that are not undefined: options of flags that were not given are left out. */
export function definedFields<Fields extends object>(
  fields: Fields,
): { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> } {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as ReturnType<typeof definedFields<Fields>>
}

export const maxPort = 65_535

export function portFlag(defaultPort: number) {
  return flag.integer('<number>', 'The port; 0 for any free one.', { max: maxPort, default: String(defaultPort) })
}

export const commonFlags = flagGroup('General', {
  debug: flag.switch('Show the stack trace of an error.'),
  help: flag.switch('Show this help.', { short: 'h' }),
})

export const runsFlag = {
  ...flag.text('<folder>', 'Where runs are kept. [default: MILLRACE_RUNS, or runs]'),
  group: 'Runs',
} as const

/** The flags for options of a stored run's environment, for every command that runs it again. */
export const storedOptionPrefix = {
  value: '<option>=<value>',
  group: 'What to run',
  help: 'An option of the environment: a value other than in the run, or a secret that the run does not store.',
} as const satisfies PrefixSpec
