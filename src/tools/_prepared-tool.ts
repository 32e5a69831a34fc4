import { MillraceError } from '../errors/index.ts'
import { describeThrown } from '../kit/index.ts'
import type { ContentPart, OutputOf, StandardSchema, ToolDefinition, ToolRecord } from '../schema/index.ts'
import { describeParameters } from './_describe-parameters.ts'
import { readArguments } from './_read-arguments.ts'
import type { NamedTool } from './_tool-names.ts'
import { contentOf } from './_tool-output.ts'
import { endsAttempt } from './ends-attempt.ts'
import { jsonSchemaOf, type JsonSchema } from './json-schema.ts'
import { ToolAnswer } from './tool-answer.ts'
import type { Tool, ToolOutput } from './tool.ts'
import { validate, type Validated } from './validate.ts'

/** The result of one call, before it is put into a message. */
export interface Attempt extends Pick<ToolRecord, 'status' | 'threw' | 'repairs' | 'detail'> {
  readonly content: string | readonly ContentPart[]
}

/** The names of functions that OpenAI's API and servers modelled on it accept. */
const namePattern = /^[a-zA-Z0-9_-]{1,64}$/

/** A tool with everything about it that does not change from call to call. */
export class PreparedTool<Context extends object> implements NamedTool {
  readonly name: string
  readonly tool: Tool<Context>
  readonly definition: ToolDefinition
  readonly #maxOutputChars: number | undefined
  #signature: string | undefined

  constructor(name: string, tool: Tool<Context>, maxOutputChars?: number) {
    this.name = name
    this.tool = tool
    this.#maxOutputChars = maxOutputChars
    if (!namePattern.test(name)) {
      throw new MillraceError(
        'env_invalid',
        `"${name}" cannot be the name of a tool: use up to 64 letters, digits, "_" and "-"`,
      )
    }
    this.definition = {
      type: 'function',
      function: {
        name,
        ...(tool.description !== undefined && { description: tool.description }),
        parameters: parametersOf(name, tool.parameters),
      },
    }
  }

  get server(): string | undefined {
    return this.tool.origin?.server
  }

  get serverToolName(): string | undefined {
    return this.tool.origin?.name
  }

  /** Makes a call. Throws only errors that end the attempt, never because of the tool or its arguments. */
  attempt(argumentsText: string, context: Context): Attempt | Promise<Attempt> {
    const { value, problem } = readArguments(argumentsText)
    if (!value) return this.#badArguments(problem)
    return this.attemptWith(value, context)
  }

  /** Makes a call with arguments that were read already. */
  attemptWith(value: unknown, context: Context): Attempt | Promise<Attempt> {
    const validated = validate(this.tool.parameters, value)
    if (!(validated instanceof Promise)) return this.#run(validated, context)
    return validated.then((settled) => this.#run(settled, context))
  }

  #run(validated: Validated<OutputOf<StandardSchema>>, context: Context): Attempt | Promise<Attempt> {
    if (validated.problem !== undefined) return this.#badArguments(validated.problem)
    try {
      const output = this.tool.run(validated.value, context)
      if (!isPromise(output)) return this.#succeeded(output)
      return Promise.resolve(output)
        .then((made) => this.#succeeded(made))
        .catch((error: unknown) => this.#failed(error))
    } catch (error) {
      return this.#failed(error)
    }
  }

  #succeeded(output: ToolOutput | ToolAnswer): Attempt {
    if (!(output instanceof ToolAnswer)) return { status: 'ok', content: contentOf(output, this.#maxOutputChars) }
    const { isError, detail } = output
    const content = contentOf(output.output, this.#maxOutputChars)
    return { status: isError ? 'failed' : 'ok', content, ...(detail && { detail }) }
  }

  #badArguments(problem: string): Attempt {
    this.#signature ??= describeParameters(this.definition.function.parameters)
    const content = `Error: bad arguments for ${this.name}: ${problem}. Expected ${this.#signature}. Correct them and call it again.`
    return { status: 'bad_arguments', content: contentOf(content, this.#maxOutputChars) }
  }

  #failed(thrown: unknown): Attempt {
    if (endsAttempt(thrown)) throw thrown
    const { kind = ownCodeFault(thrown), place, message } = describeThrown(thrown)
    const failure = { status: 'failed', content: contentOf(`Error: ${message}`, this.#maxOutputChars) } as const
    if (kind === undefined) return failure
    const threw = { kind: place === undefined ? kind : `${kind} at ${place}`, message: firstLine(message) }
    return { ...failure, threw }
  }
}

function parametersOf(name: string, schema: StandardSchema): Record<string, unknown> {
  let parameters: JsonSchema
  try {
    parameters = jsonSchemaOf(schema)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'env_invalid')
    throw new MillraceError('env_invalid', `the parameters of tool "${name}": ${rawMessage}`, { cause: error })
  }
  if (parameters['type'] !== 'object') {
    throw new MillraceError(
      'env_invalid',
      `the parameters of tool "${name}" must be an object, since models send named arguments: wrap them in z.object({ … })`,
    )
  }
  return parameters
}

/** A `MillraceError` is no fault of the tool's code, unless it says that the code uses its context wrongly. */
function ownCodeFault(thrown: unknown): string | undefined {
  return thrown instanceof MillraceError && thrown.code === 'env_invalid' ? thrown.code : undefined
}

/** How much of a message's first line is kept; the result has the whole message, which may be a page. */
const maxMessageChars = 300

function firstLine(message: string): string {
  const end = message.indexOf('\n')
  return message.slice(0, Math.min(maxMessageChars, end < 0 ? message.length : end))
}

type Returned = ReturnType<Tool<object>['run']>

function isPromise(output: Returned): output is Promise<Awaited<Returned>> {
  return typeof output === 'object' && output !== null && 'then' in output && typeof output.then === 'function'
}
