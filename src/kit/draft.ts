/** An object while it is put together: optional fields are added afterwards. */
export type Draft<Whole> = { -readonly [Key in keyof Whole]: Whole[Key] }
