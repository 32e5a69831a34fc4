import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import { MillraceError } from '../../../errors/index.ts'
import { parseYaml } from '../../../kit/index.ts'
import { closedObject, describeIssues, safeParse } from '../../../schema/index.ts'
import type { ServedAgentOptions } from '../../../serve/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { readInputFile } from '../../command-line/input-file.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { optionsFromFlags } from '../eval/options-from-flags.ts'
import type { ServeFlags } from './serve-command.ts'

interface ServedEnvironment {
  readonly name?: string
  readonly environment: string
  readonly options?: Readonly<Record<string, unknown>>
}

/** What the command line and `--services` say is to be served, in this order; all flags count for each of them. */
export async function servedEnvironments(
  invocation: Invocation<ServeFlags>,
  io: Pick<CommandIo, 'cwd' | 'env'>,
): Promise<readonly ServedAgentOptions[]> {
  const { services, 'max-queued': maxQueuedRollouts } = invocation.flags
  const listed = services === undefined ? [] : await readServices(services, io.cwd)
  const all = [...invocation.arguments.map(named), ...listed]
  const [first] = all
  if (!first) {
    throw usageError(
      'millrace serve needs an environment, or --services with a file that lists some; see millrace serve --help',
    )
  }
  const {
    run = {},
    options: shared,
    ...options
  } = await optionsFromFlags({ ...invocation, arguments: [first.environment] }, io)
  return Array.from(all, ({ name, environment, options: own }) => ({
    ...options,
    environment,
    ...((shared || own) && { options: { ...(shared as object | undefined), ...own } }),
    ...(name !== undefined && { name }),
    run: all.length === 1 || run.name === undefined ? run : { ...run, name: `${run.name}-${nameOf(name)}` },
    ...(maxQueuedRollouts !== undefined && { bounds: { maxQueuedRollouts } }),
  }))
}

/** `name=environment`, or an environment alone. A path may have a `=` in it, a name has no slash. */
function named(argument: string): ServedEnvironment {
  const [, name, environment] = /^([\w.-]+)=(.+)$/.exec(argument) ?? []
  return name === undefined || environment === undefined ? { environment: argument } : { name, environment }
}

function nameOf(name: string | undefined): string {
  if (name !== undefined) return name
  throw usageError('--run names a run for each environment: give each a name, as math=./environment.ts')
}

const servicesSchema = z.record(
  z.string(),
  closedObject({
    environment: z.string(),
    options: z.record(z.string(), z.unknown()).exactOptional(),
  }),
)

async function readServices(path: string, cwd: string): Promise<ServedEnvironment[]> {
  const content = parseYaml(await readInputFile(path, cwd, 'config_invalid'), path)
  const { success, data, error } = safeParse(servicesSchema, content)
  if (!success) {
    throw new MillraceError(
      'config_invalid',
      `${path}: ${describeIssues(error.issues, content)}; expected name: { environment: …, options: { … } }`,
    )
  }
  const folder = dirname(resolve(cwd, path))
  return Array.from(Object.entries(data), ([name, { environment, ...rest }]) => ({
    name,
    // A path is the file's, whatever folder the command is called in.
    environment: environment.startsWith('.') ? resolve(folder, environment) : environment,
    ...rest,
  }))
}
