import { z } from 'zod'
import { evaluateExpression } from '../../../examples/arithmetic/expression.ts'

// What the simulator is asked here: it calls a calculator if it is offered one, and hands out the parts of a list, all at
// once, if it is offered somebody to delegate to.

export const question = 'What is 12 * 34?'
export const answer = '408'
export const listQuestion = 'Add these up:\n- 2 * 3\n- 4 * 5\n- 6 * 7'
export const listAnswer = '68'

export const calculatorParameters = z.object({ expression: z.string() })
export const delegateParameters = z.object({ task: z.string() })

/** The same for APIs that take a JSON Schema. */
export const calculator = {
  name: 'calculator',
  description: 'The value of an arithmetic expression.',
  schema: objectWith('expression'),
} as const
export const delegate = {
  name: 'delegate',
  description: 'Has somebody else work out a part.',
  schema: objectWith('task'),
} as const

/** What the tool of that name answers. */
export function runTool(name: string, input: unknown): string {
  if (name === calculator.name) return calculate(calculatorParameters.parse(input))
  if (name === delegate.name) return delegated(delegateParameters.parse(input))
  throw new Error(`there is no tool ${name}`)
}

export function calculate({ expression }: z.infer<typeof calculatorParameters>): string {
  return String(evaluateExpression(expression))
}

export function delegated({ task }: z.infer<typeof delegateParameters>): string {
  const [, expression = ''] = /What is (.+?)\?/.exec(task) ?? []
  return calculate({ expression })
}

function objectWith(name: string) {
  return {
    type: 'object' as const,
    properties: { [name]: { type: 'string' } },
    required: [name],
    additionalProperties: false,
  }
}

/** A png of one pixel. */
const data = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

export const image = { mediaType: 'image/png', data, dataUrl: `data:image/png;base64,${data}` } as const
