import { z } from 'zod'
import { unknownField } from '../kit/index.ts'

/** An object with these fields and no others: a misspelt field is refused, with the name that was meant. */
export function closedObject<Shape extends z.core.$ZodShape>(shape: Shape): z.ZodObject<Shape, z.core.$strict> {
  const known = Object.keys(shape)
  return z.strictObject(shape, {
    error: ({ code, input }) =>
      code === 'unrecognized_keys' && typeof input === 'object' && input !== null
        ? unknownField(input, known)
        : undefined,
  })
}
