import type { ToolDefinition } from '../../schema/index.ts'

/** A parameter of a tool, as far as the top level of its JSON schema describes it. */
interface Parameter {
  readonly name: string
  readonly type: string
  readonly isRequired: boolean
  readonly schema: Readonly<Record<string, unknown>>
}

function parametersOf(tool: ToolDefinition): Parameter[] {
  const { properties, required } = tool.function.parameters
  if (typeof properties !== 'object' || properties === null) return []
  const needed: unknown[] = Array.isArray(required) ? required : []
  return Object.entries(properties).map(([name, schema]: [string, unknown]) => {
    const fields = typeof schema === 'object' && schema !== null ? (schema as Record<string, unknown>) : {}
    const type = fields['type']
    return { name, type: typeof type === 'string' ? type : 'any', isRequired: needed.includes(name), schema: fields }
  })
}

/** A parameter of a tool by its name. */
export function parameterNamed(tool: ToolDefinition, name: string): Parameter | undefined {
  return parametersOf(tool).find((parameter) => parameter.name === name)
}

/** The name of the one parameter of this type that a call must give, if the tool needs nothing else. */
export function soleParameter(tool: ToolDefinition, types: readonly string[]): string | undefined {
  const parameters = parametersOf(tool)
  const found = parameters.find((parameter) => types.includes(parameter.type))
  const needsMore = parameters.some((parameter) => parameter.isRequired && parameter !== found)
  return needsMore ? undefined : found?.name
}
