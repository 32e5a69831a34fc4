import { MillraceError } from '../../../errors/index.ts'
import type { EvaluateOptions } from '../../../eval/index.ts'
import { nemoGym } from '../../../nemo-gym/index.ts'
import type { JsonObject } from '../../../schema/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { usageError } from '../../command-line/flag-value.ts'
import type { CommandIo } from '../../terminal/io.ts'
import type { EvalFlags } from './eval-command.ts'
import { optionsFromFlags } from './options-from-flags.ts'

/** What `eval` is to run: an environment, or rows of NeMo Gym. */
export async function evalOptions(
  invocation: Invocation<EvalFlags>,
  io: Pick<CommandIo, 'cwd' | 'env'>,
): Promise<EvaluateOptions> {
  const { flags, prefixed } = invocation
  const [environment] = invocation.arguments
  const { 'nemo-gym': config, input } = flags
  const given = prefixed['nemo-gym']
  if (!config) {
    if (input !== undefined || given) throw usageError('--input and --nemo-gym.… go with --nemo-gym <file.yaml>')
    return await optionsFromFlags(invocation, io)
  }
  if (environment !== undefined) {
    throw usageError(`--nemo-gym takes the place of an environment: leave it or ${environment} out`)
  }
  if (prefixed['env']) throw usageError('--env.… is for environments of Millrace: leave it or --nemo-gym out')
  if (input === undefined) throw usageError('--nemo-gym needs rows: add -i <file.jsonl>')
  const options = await optionsFromFlags({ ...invocation, arguments: [''] }, io)
  const { url, agent: agentName, prompt_config: promptConfig, ...overrides } = given ?? {}
  const gym = await nemoGym({
    config,
    input,
    url: text('url', url),
    agentName: text('agent', agentName),
    promptConfig: text('prompt_config', promptConfig),
    agent: options.agent,
    overrides: overrides as JsonObject,
    preflight: options.preflight,
    cwd: io.cwd,
    env: io.env,
  }).catch((error: unknown) => {
    throw withoutOptionNames(error)
  })
  return { ...options, ...gym }
}

function text(option: string, value: unknown): string | undefined {
  if (value === undefined || typeof value === 'string') return value
  throw usageError(`--nemo-gym.${option} is a text, as --nemo-gym.${option}=<text>`)
}

/** The library's errors name its options behind the flags. */
function withoutOptionNames(error: unknown): unknown {
  if (!(error instanceof MillraceError)) return error
  const message = error.rawMessage.replaceAll(/ \((?:url|agent|agentName|overrides|promptConfig)\)/g, '')
  return new MillraceError(error.code, message, { data: error.data, cause: error })
}
