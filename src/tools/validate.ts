import {
  describeIssues,
  type OutputOf,
  type StandardSchema,
  type ValidationIssue,
  type ValidationResult,
} from '../schema/index.ts'

export type Validated<Value> =
  | { readonly value: Value; readonly problem?: undefined }
  | { readonly problem: string; readonly issues: readonly ValidationIssue[] }

/**
 * Checks a value that came from outside: a task, options, the arguments of a tool call. A promise only where the schema
 * itself is asynchronous. A schema that throws (a transform of the author's own, say) is a problem of the value.
 */
export function validate<Schema extends StandardSchema>(
  schema: Schema,
  value: unknown,
): Validated<OutputOf<Schema>> | Promise<Validated<OutputOf<Schema>>> {
  try {
    const result = schema['~standard'].validate(value)
    return result instanceof Promise
      ? result.then((settled) => toValidated<OutputOf<Schema>>(settled, value), thrownProblem)
      : toValidated<OutputOf<Schema>>(result, value)
  } catch (error) {
    return thrownProblem(error)
  }
}

function toValidated<Value>(result: ValidationResult<unknown>, given: unknown): Validated<Value> {
  // The schema vouches for the type; Standard Schema has no way to say so once its own type is a parameter.
  if (!result.issues) return { value: result.value as Value }
  return { problem: describeIssues(result.issues, given), issues: result.issues }
}

function thrownProblem(thrown: unknown): { problem: string; issues: readonly ValidationIssue[] } {
  const message = thrown instanceof Error ? thrown.message : String(thrown)
  return { problem: message, issues: [{ message }] }
}
