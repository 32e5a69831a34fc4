import { parseArgs } from 'node:util'
import type { MillraceError } from '../../errors/index.ts'
import { jsonOrText, nearestName } from '../../kit/index.ts'
import type { Command, Invocation } from './command.ts'
import { commonFlags, type FlagTable } from './flags.ts'
import { flagValue, looksLikeFlag, usageError } from './flag-value.ts'

type Token = NonNullable<ReturnType<typeof parseArgs>['tokens']>[number]

/**
 * Reads the arguments after a command's name. node:util splits them into flags and values; which flags exist, which need a
 * value and what the value means is decided here, so that every mistake gets one sentence with the way out.
 */
export function parseCommandLine<Flags extends FlagTable>(
  command: Command<Flags>,
  args: readonly string[],
): Invocation<Flags> {
  const table: FlagTable = { ...commonFlags, ...command.flags }
  const prefixes = command.prefixes ?? {}
  const { tokens } = parseArgs({
    args: [...args],
    options: { ...declareFlags(table), ...declarePrefixed(args, Object.keys(prefixes)) },
    strict: false,
    allowPositionals: true,
    tokens: true,
  })
  const values: Record<string, unknown> = {}
  const prefixed: Record<string, Record<string, unknown>> = {}
  const requires = ({ required, unless }: Command['arguments'][number]): boolean =>
    required && !tokens.some((token) => token.kind === 'option' && token.name === unless)
  const required = command.arguments.filter(requires).length
  const positionals: string[] = []
  let optionalValue: Token | undefined
  for (const [index, token] of tokens.entries()) {
    if (token.kind === 'positional' && token !== optionalValue) positionals.push(token.value)
    if (token.kind !== 'option') continue
    const spec = Object.hasOwn(table, token.name) ? table[token.name] : undefined
    const prefix = prefixes[token.name.slice(0, token.name.indexOf('.'))] && token.name.split('.')[0]
    if (spec?.kind === 'optional') {
      const next = tokens[index + 1]
      const takesNext = token.value === undefined && next?.kind === 'positional' && positionals.length >= required
      if (takesNext) optionalValue = next
      values[token.name] = takesNext ? next.value : (token.value ?? '')
    } else if (spec) {
      const value = flagValue(spec, { rawName: token.rawName, text: token.value, isInline: token.inlineValue ?? false })
      values[token.name] = spec.kind === 'texts' ? [...((values[token.name] as string[]) ?? []), value] : value
    } else if (prefix !== undefined) {
      const value = token.value === undefined ? true : jsonOrText(token.value)
      put((prefixed[prefix] ??= {}), token.name.split('.').slice(1), value, token.rawName)
    } else {
      throw unknownFlag(command, table, token.rawName)
    }
  }
  // With `--help`, the help is shown whatever else is wrong with the line.
  if (values['help'] !== true) checkArguments(command, required, positionals)
  // The values follow the command's own table, so they have the command's types.
  return {
    arguments: positionals,
    flags: values as Invocation<Flags>['flags'],
    prefixed,
    args,
    notices: overruledNotices(tokens, table),
  }
}

/** Of a flag that takes one value the last counts, so that a line which a script has begun can be overruled at its end. */
function overruledNotices(tokens: readonly Token[], table: FlagTable): string[] {
  const options = tokens.filter((token) => token.kind === 'option')
  const single = options.filter(({ name }) => table[name]?.kind !== 'texts')
  return Array.from(Map.groupBy(single, ({ name }) => name).values()).flatMap((uses) => {
    const values = new Set(uses.map(({ value }) => value))
    return values.size > 1 ? [`${uses.at(-1)?.rawName} is given more than once; the last one counts`] : []
  })
}

function declareFlags(table: FlagTable): Record<string, { type: 'string' | 'boolean'; short?: string }> {
  return Object.fromEntries(
    Object.entries(table).map(([name, spec]) => [
      name,
      {
        type: spec.kind === 'switch' || spec.kind === 'optional' ? 'boolean' : 'string',
        ...(spec.short && { short: spec.short }),
      },
    ]),
  )
}

/** Prefixed flags such as `--env.size 5` must be declared before the line is parsed; without a value they are switches. */
function declarePrefixed(
  args: readonly string[],
  prefixes: readonly string[],
): Record<string, { type: 'string' | 'boolean' }> {
  const declared: Record<string, { type: 'string' | 'boolean' }> = {}
  for (const [index, arg] of args.entries()) {
    if (arg === '--') break
    const name = /^--([^=]+)/.exec(arg)?.[1]
    if (!name || !prefixes.some((prefix) => name.startsWith(`${prefix}.`))) continue
    const next = args[index + 1]
    const hasValue = arg.includes('=') || (next !== undefined && !looksLikeFlag(next))
    declared[name] = { type: hasValue ? 'string' : 'boolean' }
  }
  return declared
}

function put(target: Record<string, unknown>, path: readonly string[], value: unknown, rawName: string): void {
  const [name, ...rest] = path
  if (name === undefined || name === '')
    throw usageError(`${rawName} lacks the name of the option: ${rawName}<option>=<value>`)
  if (rest.length === 0) {
    target[name] = value
    return
  }
  const inner = target[name]
  const next: Record<string, unknown> = typeof inner === 'object' && inner !== null ? { ...inner } : {}
  target[name] = next
  put(next, rest, value, rawName)
}

function unknownFlag(command: Command, table: FlagTable, rawName: string): MillraceError {
  const known = [
    ...Object.keys(table).map((name) => `--${name}`),
    ...Object.keys(command.prefixes ?? {}).map((name) => `--${name}.`),
  ]
  const near = rawName.startsWith('--') ? nearestName(rawName, known) : undefined
  const hint = near ? `; did you mean ${near}?` : `; millrace ${command.name} --help lists them all`
  return usageError(`unknown flag ${rawName}${hint}`)
}

function checkArguments(command: Command, required: number, positionals: readonly string[]): void {
  const missing = command.arguments.slice(0, required)[positionals.length]
  if (missing) {
    throw usageError(`millrace ${command.name} needs ${missing.help}; see millrace ${command.name} --help`)
  }
  const extra = positionals[command.arguments.length]
  if (extra !== undefined && !command.arguments.at(-1)?.isList) {
    throw usageError(`unexpected argument "${extra}"; see millrace ${command.name} --help`)
  }
}
